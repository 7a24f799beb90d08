//! Where a source binds a name that the program reads without executing it.
//!
//! `libraries` and `backward` say what a task is. A form of assignment that the reader does not know must not look
//! like a task without the constant, so everything that binds or changes the name is found, wherever it stands.

use ruff_python_ast::visitor::{self, Visitor};
use ruff_python_ast::{
    Alias, ExceptHandler, Expr, ExprContext, Identifier, Parameter, Pattern, Stmt,
};
use ruff_text_size::{Ranged, TextRange};

/// What a statement or expression does to the name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form<'a> {
    /// `name = value` at the top level of the module, with or without an annotation.
    Plain(&'a Expr),
    /// A function, class or import of that name in the module, and that for people.
    Definition(&'static str),
    /// Its value is changed and the name stays bound.
    Changed(&'static str),
    /// Anything else that binds the module's name, and what that is for people.
    Other(&'static str),
    /// A name of a function, class or comprehension, which is another variable.
    Inner(&'static str),
}

/// One place that binds or changes the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound<'a> {
    pub(crate) at: TextRange,
    pub(crate) form: Form<'a>,
}

/// Every place of a module that binds or changes `name`, in the order of the source.
pub(crate) fn bound<'a>(body: &'a [Stmt], name: &str) -> Vec<Bound<'a>> {
    let mut finder = Finder { name, scopes: 0, comprehensions: 0, found: Vec::new() };
    for statement in body {
        finder.top_level(statement);
    }
    let mut found = finder.found;
    found.sort_by_key(|bound| bound.at.start());
    found
}

struct Finder<'a, 'n> {
    name: &'n str,
    /// Functions, classes and lambdas around the place.
    scopes: usize,
    comprehensions: usize,
    found: Vec<Bound<'a>>,
}

impl<'a> Finder<'a, '_> {
    fn top_level(&mut self, statement: &'a Stmt) {
        let plain = match statement {
            Stmt::Assign(assign) => match &assign.targets[..] {
                [target] => Some((target, &*assign.value)),
                _ => None,
            },
            Stmt::AnnAssign(assign) => {
                assign.value.as_deref().map(|value| (&*assign.target, value))
            }
            _ => None,
        };
        if let Some((target, value)) = plain
            && self.is_name(target)
        {
            self.add(target.range(), Form::Plain(value));
            // The value may bind it too.
            self.visit_expr(value);
            return;
        }
        self.visit_stmt(statement);
    }

    fn is_name(&self, expression: &Expr) -> bool {
        matches!(expression, Expr::Name(name) if name.id.as_str() == self.name)
    }

    fn add(&mut self, at: TextRange, form: Form<'a>) {
        self.found.push(Bound { at, form });
    }

    /// A place that binds the name in the innermost scope.
    fn bind(&mut self, at: TextRange, what: &'static str) {
        let inner = self.scopes > 0 || self.comprehensions > 0;
        self.add(at, if inner { Form::Inner(what) } else { Form::Other(what) });
    }

    fn bind_word(&mut self, word: Option<&Identifier>, what: &'static str) {
        if let Some(word) = word
            && word.as_str() == self.name
        {
            self.bind(word.range(), what);
        }
    }

    /// A function, class or import; of `import a.b` the name is `a`.
    fn define(&mut self, word: &Identifier) {
        if word.as_str().split('.').next() == Some(self.name) {
            let what = "it is a function, a class or an import";
            let inner = self.scopes > 0;
            self.add(word.range(), if inner { Form::Inner(what) } else { Form::Definition(what) });
        }
    }

    /// The parts of a function or class.
    fn inside(&mut self, statement: &'a Stmt) {
        self.scopes += 1;
        visitor::walk_stmt(self, statement);
        self.scopes -= 1;
    }
}

impl<'a> Visitor<'a> for Finder<'a, '_> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::FunctionDef(function) => {
                self.define(&function.name);
                self.inside(statement);
            }
            Stmt::ClassDef(class) => {
                self.define(&class.name);
                self.inside(statement);
            }
            Stmt::Global(global) => {
                let name = self.name;
                for word in global.names.iter().filter(|word| word.as_str() == name) {
                    self.add(word.range(), Form::Other("a function declares it `global`"));
                }
            }
            Stmt::AugAssign(assign) if self.is_name(&assign.target) => {
                self.bind(assign.target.range(), "it is changed in place");
                self.visit_expr(&assign.value);
            }
            Stmt::AnnAssign(assign) if assign.value.is_none() && self.is_name(&assign.target) => {
                self.bind(assign.target.range(), "it is annotated without a value");
            }
            _ => visitor::walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Name(name) if name.id.as_str() == self.name => match name.ctx {
                ExprContext::Store => {
                    self.bind(name.range, "it is not assigned by one plain statement at top level");
                }
                ExprContext::Del => self.bind(name.range, "it is deleted"),
                ExprContext::Load | ExprContext::Invalid => {}
            },
            // It binds the name around a comprehension, not in it.
            Expr::Named(named) if self.is_name(&named.target) => {
                let comprehensions = std::mem::take(&mut self.comprehensions);
                self.bind(named.target.range(), "it is assigned within an expression");
                self.comprehensions = comprehensions;
                self.visit_expr(&named.value);
            }
            Expr::Lambda(_) => {
                self.scopes += 1;
                visitor::walk_expr(self, expression);
                self.scopes -= 1;
            }
            Expr::ListComp(_) | Expr::SetComp(_) | Expr::DictComp(_) | Expr::Generator(_) => {
                self.comprehensions += 1;
                visitor::walk_expr(self, expression);
                self.comprehensions -= 1;
            }
            // `name.append(...)`, wherever it stands.
            Expr::Call(call) => {
                if let Expr::Attribute(attribute) = &*call.func
                    && self.is_name(&attribute.value)
                {
                    self.add(attribute.range, Form::Changed("a method of it is called"));
                }
                visitor::walk_expr(self, expression);
            }
            Expr::Subscript(subscript) => {
                let changes = matches!(subscript.ctx, ExprContext::Store | ExprContext::Del);
                if changes && self.is_name(&subscript.value) {
                    self.add(subscript.range, Form::Changed("an item of it is changed"));
                }
                visitor::walk_expr(self, expression);
            }
            _ => visitor::walk_expr(self, expression),
        }
    }

    fn visit_parameter(&mut self, parameter: &'a Parameter) {
        self.bind_word(Some(&parameter.name), "it is a parameter of a function");
        visitor::walk_parameter(self, parameter);
    }

    fn visit_alias(&mut self, alias: &'a Alias) {
        let word = alias.asname.as_ref().unwrap_or(&alias.name);
        self.define(word);
    }

    fn visit_except_handler(&mut self, handler: &'a ExceptHandler) {
        let ExceptHandler::ExceptHandler(inner) = handler;
        self.bind_word(inner.name.as_ref(), "it is the name of an exception");
        visitor::walk_except_handler(self, handler);
    }

    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        let word = match pattern {
            Pattern::MatchAs(matched) => matched.name.as_ref(),
            Pattern::MatchStar(matched) => matched.name.as_ref(),
            Pattern::MatchMapping(matched) => matched.rest.as_ref(),
            _ => None,
        };
        self.bind_word(word, "it is the name of a pattern");
        visitor::walk_pattern(self, pattern);
    }
}

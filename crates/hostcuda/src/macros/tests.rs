//! Expansions, as the standard has them.

use super::*;

/// Defines all lines but the last, and expands that.
fn expanded(text: &str) -> Result<String, Stop> {
    let mut table = Table::new();
    let (defines, last) = text.rsplit_once('\n').unwrap_or(("", text));
    for line in defines.lines() {
        let tokens: Vec<Token> = lex(line).into_iter().filter(Token::is_code).collect();
        let (name, definition) = Definition::read(line, &tokens).unwrap();
        table.insert(name.into(), Rc::new(definition));
    }
    let tokens: Vec<Token> = lex(last).into_iter().filter(Token::is_code).collect();
    let mut budget = Budget::default();
    let expanded = Expander::new(&table, &mut budget, 7).expand(pieces(last, &tokens), None)?;
    Ok(written(&expanded))
}

#[test]
fn macro_expansion_follows_the_standard() {
    for (text, wanted) in [
        ("#define A B\n#define B 1\nA + A", "1 + 1"),
        ("#define K(T, n) void n##_##T(T* x)\nK(float, add);", "void add_float ( float * x) ;"),
        ("#define S(x) #x\nS(a  \"b\\n\" + c)", "\"a \\\"b\\\\n\\\" + c\""),
        ("#define C(a, b) C2(a, b)\n#define C2(a, b) a##b\n#define X y\nC(X, __LINE__)", "y7"),
        ("#define F(x) x F(x)\nF(1)", "1 F( 1 )"),
        ("#define L(X) X(a) X(b)\n#define D(n) int n;\nL(D)", "int a ; int b ;"),
        ("#define V(f, ...) f(0, ##__VA_ARGS__)\nV(g) V(g, 1, 2)", "g (0 ) g (0, 1, 2 )"),
        ("#define V(f, ...) f(0 __VA_OPT__(,) __VA_ARGS__)\nV(g) V(g, 1)", "g (0 ) g (0, 1 )"),
        ("#define V(args...) f(args)\nV(1, 2)", "f( 1, 2 )"),
        ("#define M K\n#define K(x) k_##x\nM (a)", "k_a"),
        ("#define E\n#define P(a, b) a##b\nP(,x) P(x,) P(E,1)", "x x E1"),
        ("#define N -1\n#define G(x) -x>>1\nG(N)", "- -1 >>1"),
        ("#define Q(x) k<<<x, 2>>>(x)\nQ(n)", "k<<< n , 2>>>( n )"),
    ] {
        assert_eq!(expanded(text).as_deref(), Ok(wanted), "{text}");
    }
    assert_eq!(expanded("#define F(x) x\nF(1"), Err(Stop::Unclosed));
}

#[test]
fn exponential_macro_expansion_is_refused() {
    use std::fmt::Write as _;
    for link in ["x{} x{}", "f{}(f{}(a))", "f{}(y)f{}(y)"] {
        let mut text = String::from("#define x0 y\n#define f0(a) a a\n");
        for i in 1..300 {
            let body = link.replace("{}", &(i - 1).to_string());
            let head = if link.starts_with('x') { format!("x{i}") } else { format!("f{i}(a)") };
            let _ = writeln!(text, "#define {head} {body}");
        }
        let last = if link.starts_with('x') { "x299" } else { "f299(z)" };
        assert_eq!(expanded(&(text + last)), Err(Stop::TooMuch), "{link}");
    }
}

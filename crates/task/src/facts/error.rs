//! Why a source is not a task.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::excerpt::Place;
use crate::limits::MAX_SOURCE_BYTES;

/// A source that is not a task. The caller's error. Its text may have several lines: the message,
/// then the source line with a caret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    /// Where the source came from, if it is known.
    pub origin: Option<PathBuf>,
    /// The error. Boxed to keep results small.
    pub kind: Box<TaskErrorKind>,
}

/// The kinds of [`TaskError`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TaskErrorKind {
    /// Not Python.
    #[error("syntax error at {}: {message}\n{}", at.position, at.excerpt)]
    Syntax {
        /// Where.
        at: Place,
        /// The parser's message.
        message: String,
    },
    /// No `Model` at module level.
    #[error("it has no class `Model`{}", similar.as_ref().map(|s| format!(", only `{s}`")).unwrap_or_default())]
    NoModel {
        /// A class that looks as if it were meant.
        similar: Option<String>,
    },
    /// `Model` is something that cannot be instantiated.
    #[error("`Model` is a function, not a class, at {}\n{}", at.position, at.excerpt)]
    ModelNotClass {
        /// Where.
        at: Place,
    },
    /// A `Model` without `forward`, its bases included.
    #[error("class `Model` has no method `forward`, at {}\n{}", at.position, at.excerpt)]
    NoForward {
        /// The class.
        at: Place,
    },
    /// No `get_inputs`.
    #[error("it has no function `get_inputs`")]
    NoInputs,
    /// `Model` needs arguments, and there is no `get_init_inputs`.
    #[error(
        "`Model` needs the argument `{parameter}`, and there is no function `get_init_inputs`, at {}\n{}",
        at.position, at.excerpt
    )]
    NoInitInputs {
        /// First parameter of `__init__` without a default.
        parameter: String,
        /// That parameter.
        at: Place,
    },
    /// `get_inputs` or `get_init_inputs` has a parameter without a default; it is called without arguments.
    #[error("`{function}` is called without arguments, but its parameter `{parameter}` has no default, at {}\n{}", at.position, at.excerpt)]
    NeedsArgument {
        /// The function.
        function: String,
        /// First parameter without a default.
        parameter: String,
        /// That parameter.
        at: Place,
    },
    /// `async def get_inputs`, a generator, or the like.
    #[error("`{function}` is an `async` function, at {}\n{}", at.position, at.excerpt)]
    Async {
        /// The function.
        function: String,
        /// Its definition.
        at: Place,
    },
    /// `get_workloads` is no literal list of argument sets.
    #[error("failed to read the workloads of `get_workloads`: {message}, at {}\n{}", at.position, at.excerpt)]
    Workloads {
        /// Where.
        at: Place,
        /// What is wrong.
        message: String,
        /// The cure.
        cure: &'static str,
    },
    /// `backward = 1` or the like at module level.
    #[error("failed to read `backward`: {message}, at {}\n{}", at.position, at.excerpt)]
    Backward {
        /// The value or the name.
        at: Place,
        /// What is wrong.
        message: &'static str,
    },
    /// `libraries` is no literal list of names.
    #[error("failed to read `libraries`: {message}, at {}\n{}", at.position, at.excerpt)]
    Libraries {
        /// Where.
        at: Place,
        /// What is wrong.
        message: String,
        /// The cure.
        cure: &'static str,
    },
    /// `from . import x`: a task is one file.
    #[error("relative import at {}\n{}", at.position, at.excerpt)]
    RelativeImport {
        /// Where.
        at: Place,
    },
    /// Over the limit.
    #[error("its {bytes} bytes exceed the limit of {MAX_SOURCE_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// A definition of another format that makes no task.
    #[error("{reason}")]
    Refused {
        /// Why, and what to do.
        reason: String,
    },
    /// The parser itself failed: a bug.
    #[error("the parser failed, which is a bug in warpwright")]
    Unreadable,
}

impl TaskError {
    /// The same error, naming where the source came from.
    #[must_use]
    pub fn of(mut self, origin: &Path) -> Self {
        self.origin = Some(origin.to_owned());
        self
    }

    /// How the caller can fix it.
    pub fn hint(&self) -> &'static str {
        match *self.kind {
            TaskErrorKind::Syntax { .. } => "`python3 -m py_compile FILE` shows the same error",
            TaskErrorKind::NoModel { .. } => {
                "a task is a file with `class Model(nn.Module)`, `get_inputs()` and `get_init_inputs()`; rename the module to `Model`"
            }
            TaskErrorKind::ModelNotClass { .. } => "make it `class Model(nn.Module)`",
            TaskErrorKind::NoForward { .. } => {
                "add `def forward(self, ...)`, taking what `get_inputs()` returns"
            }
            TaskErrorKind::NoInputs => {
                "add `def get_inputs(): return [torch.randn(...)]`, the arguments of `forward`"
            }
            TaskErrorKind::NoInitInputs { .. } => {
                "add `def get_init_inputs(): return [...]`, the arguments of `Model`, or give the parameter a default"
            }
            TaskErrorKind::NeedsArgument { .. } => {
                "the function is called without arguments: give the parameter a default, or use a constant"
            }
            TaskErrorKind::Async { .. } => "make it a plain function",
            TaskErrorKind::Workloads { cure, .. } | TaskErrorKind::Libraries { cure, .. } => cure,
            TaskErrorKind::Backward { .. } => {
                "write `backward = True` once, at module level, for a task with gradients, else `backward = False` or another name"
            }
            TaskErrorKind::RelativeImport { .. } => {
                "a task is one file: copy what it needs into it"
            }
            TaskErrorKind::TooLarge { .. } => {
                "a task is one module's reference; leave weights and data out of the source"
            }
            TaskErrorKind::Refused { .. } => {
                "docs/guides/evaluate-a-model.md says which definitions can be judged"
            }
            TaskErrorKind::Unreadable => "report the bug, with the file",
        }
    }
}

impl From<TaskErrorKind> for TaskError {
    fn from(kind: TaskErrorKind) -> Self {
        Self { origin: None, kind: Box::new(kind) }
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => {
                write!(f, "failed to read the task {}: {}", origin.display(), self.kind)
            }
            None => write!(f, "failed to read the task: {}", self.kind),
        }
    }
}

impl std::error::Error for TaskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message already says what the kind says.
        None
    }
}

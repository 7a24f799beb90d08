//! What is found in a source, and what to warn of.

use super::excerpt::Position;
use crate::mode::Mode;

/// Static facts of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Imports at module level, in order of appearance. Imports inside functions are left out: they
    /// may never run.
    pub imports: Vec<Import>,
    /// Whether the source defines `get_init_inputs`.
    pub init_inputs: InitInputs,
    /// Places that ask for a GPU by name.
    pub device_uses: Vec<DeviceUse>,
    /// Calls reachable from `forward` that generate random numbers.
    pub random: Vec<RandomUse>,
    /// Names of the workloads, in order; empty if the task has one set of inputs.
    pub workloads: Vec<String>,
    /// Header libraries that the task allows kernels for a GPU to use.
    pub libraries: Vec<String>,
}

/// Whether the source defines `get_init_inputs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitInputs {
    /// It does.
    Declared,
    /// It does not, and `Model()` needs no argument: it is then built without any. KernelBench
    /// always has the function; people's own modules often have no use for it.
    Absent,
}

/// One module imported at module level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// First component of the module's name, e.g. `torch` for `import torch.nn.functional as F`.
    pub package: String,
    /// Name under which package registries have it, where the source is not Python itself:
    /// `PIL` is `Pillow`.
    pub distribution: Option<String>,
    /// Whether the source can run without it.
    pub presence: Presence,
    /// Where.
    pub position: Position,
}

/// Whether an import may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The source does not run without it.
    Required,
    /// Under `try`, `if` or the like: the source may have another way.
    Optional,
}

/// A place that asks for a GPU by name. On the cpu device `'cuda'` means the host there, except for
/// [`DeviceUse::Runtime`], which only a GPU can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceUse {
    /// `x.cuda()`.
    Method(Position),
    /// A text `"cuda"` or `"cuda:N"`.
    Name(Position),
    /// A call into `torch.cuda`, by its full name, other than asking whether there is a GPU.
    Runtime(Position, String),
}

/// A call that generates random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RandomUse {
    /// Full name of the called function: `torch.nn.functional.dropout`.
    pub call: String,
    /// The mode in which it does.
    pub when: RandomWhen,
    /// Where.
    pub position: Position,
}

/// When a random operator is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RandomWhen {
    /// In both modes.
    Always,
    /// In train mode only, by static analysis.
    Train,
}

/// A warning: not an error by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where.
    pub position: Position,
    /// One sentence without a full stop.
    pub message: String,
    /// How to fix it.
    pub hint: String,
}

impl DeviceUse {
    /// Where it is.
    pub fn position(&self) -> Position {
        match self {
            Self::Method(position) | Self::Name(position) | Self::Runtime(position, _) => *position,
        }
    }
}

impl Facts {
    /// Packages without which the source cannot run and which Python itself does not bring: sorted,
    /// each once.
    pub fn required_packages(&self) -> Vec<&str> {
        let mut packages: Vec<&str> = self
            .imports
            .iter()
            .filter(|import| import.presence == Presence::Required && import.distribution.is_some())
            .map(|import| import.package.as_str())
            .collect();
        packages.sort_unstable();
        packages.dedup();
        packages
    }

    /// Warnings for a run in `mode`, in order of appearance.
    pub fn warnings(&self, mode: Mode) -> Vec<Warning> {
        let random =
            self.random.iter().filter(|r| r.when == RandomWhen::Always || mode == Mode::Train);
        let random = random.map(|r| Warning {
            position: r.position,
            message: format!("`{}` samples random numbers in forward", r.call),
            hint: match r.when {
                RandomWhen::Always => "the judge refuses a reference whose result changes from call to call; pass the random tensor as an input".to_owned(),
                RandomWhen::Train => "the judge refuses active dropout; use mode eval, or set its probability to 0".to_owned(),
            },
        });
        let runtime = self.device_uses.iter().filter_map(|device| match device {
            DeviceUse::Runtime(position, call) => Some(Warning {
                position: *position,
                message: format!("`{call}` needs a GPU"),
                hint:
                    "remove the call: the judge selects the device, and the cpu device has no GPU"
                        .to_owned(),
            }),
            DeviceUse::Method(_) | DeviceUse::Name(_) => None,
        });
        let mut warnings: Vec<Warning> = random.chain(runtime).collect();
        warnings.sort_by_key(|warning| warning.position);
        warnings
    }
}

//! Arguments of task composition, shared by `synth` and `task compose`.

use std::ops::RangeInclusive;

use clap::{Args, ValueEnum};
use warpwright_synth::{Budget, Catalogue, Grammar, GrammarConfig, Level, Library, Window};

use crate::failure::{Failure, chain};

/// Options of task composition.
#[derive(Args, Debug)]
pub(crate) struct ComposeArgs {
    /// Number of operators per task, from 1 to 12; each number in the range is equally likely.
    ///
    /// A model that composes tasks is asked for this number.
    #[arg(long, value_name = "MIN-MAX", default_value = "1-5", value_parser = operators)]
    pub(crate) operators: RangeInclusive<usize>,
    /// Compose only tasks of this level, 1 to 5.
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) level: Option<u8>,
    /// Compose only from these operators of the catalogue, e.g. `torch.add,torch.nn.LayerNorm`.
    ///
    /// `docs/reference/operator-catalogue.md` lists the names.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Shape of the first tensor of each task, e.g. `8192x4096`; by default sampled.
    #[arg(long, value_name = "N[xN]...", value_parser = shape)]
    pub(crate) shape: Option<Shape>,
    /// Also compose from functions and modules of `transformers`; the interpreter must have it.
    #[arg(long)]
    pub(crate) transformers: bool,
}

impl ComposeArgs {
    /// The catalogues to compose from.
    pub(crate) fn catalogues(&self) -> Result<Vec<Catalogue>, Failure> {
        let mut catalogues = vec![Catalogue::torch().map_err(|error| broken(&error))?];
        if self.transformers {
            catalogues.push(Catalogue::transformers().map_err(|error| broken(&error))?);
        }
        Ok(catalogues)
    }

    /// Composes from them, of sizes that suit the range of run times.
    pub(crate) fn grammar(
        &self,
        catalogues: &[Catalogue],
        runtime_range: RuntimeRangeArg,
    ) -> Result<Grammar, Failure> {
        let mut library = Library::new(catalogues).map_err(|error| broken(&error))?;
        if !self.only.is_empty() {
            library = library.only(&self.only).map_err(|error| broken(&error))?;
        }
        let config = GrammarConfig {
            operators: self.operators.clone(),
            level: self.level.and_then(Level::new),
            budget: runtime_range.budget(),
            shape: self.shape.as_ref().map(|shape| shape.0.clone()),
        };
        Grammar::new(library, config).map_err(|error| broken(&error))
    }
}

fn broken(error: &dyn std::error::Error) -> Failure {
    Failure::usage(chain(error), None)
}

/// The range of times that one eager call of a task may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuntimeRangeArg {
    /// 0.05 to 10 ms, so that thousands of tasks can be judged.
    Fast,
    /// 1 to 100 ms, as in the CUDA Agent paper.
    Paper,
    /// 0.1 to 50 ms, for the cpu device.
    Host,
}

impl RuntimeRangeArg {
    pub(crate) fn bounds(self) -> Window {
        match self {
            Self::Fast => Window::fast(),
            Self::Paper => Window::paper(),
            Self::Host => Window::host(),
        }
    }

    fn budget(self) -> Budget {
        match self {
            Self::Fast => Budget::fast(),
            Self::Paper => Budget::paper(),
            Self::Host => Budget::small(),
        }
    }
}

/// The sizes of a tensor.
#[derive(Clone, Debug)]
pub(crate) struct Shape(pub(crate) Vec<u64>);

fn shape(text: &str) -> Result<Shape, String> {
    let sizes: Option<Vec<u64>> =
        text.split('x').map(|size| size.parse().ok().filter(|size| *size > 0)).collect();
    sizes.map(Shape).ok_or_else(|| "expected sizes such as 8192x4096".to_owned())
}

fn operators(text: &str) -> Result<RangeInclusive<usize>, String> {
    let number = |text: &str| {
        text.trim()
            .parse::<usize>()
            .map_err(|_| "expected a number or a range such as 2-3".to_owned())
    };
    let (least, most) = match text.split_once('-') {
        Some((least, most)) => (number(least)?, number(most)?),
        None => (number(text)?, number(text)?),
    };
    if (1..=most).contains(&least) && most <= 12 {
        Ok(least..=most)
    } else {
        Err("expected numbers from 1 to 12, the smaller one first".to_owned())
    }
}

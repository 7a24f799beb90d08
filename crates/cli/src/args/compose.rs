//! What tasks are composed of, wherever they are.

use std::ops::RangeInclusive;

use clap::{Args, ValueEnum};
use warpwright_synth::{Budget, Catalogue, Grammar, GrammarConfig, Level, Library, Window};

use crate::failure::{Failure, chain};

/// How tasks are composed.
#[derive(Args, Debug)]
pub(crate) struct ComposeArgs {
    /// Operators of a task, each number as often as the others; what a model is asked for.
    #[arg(long, value_name = "LEAST-MOST", default_value = "1-5", value_parser = operators)]
    pub(crate) operators: RangeInclusive<usize>,
    /// Only tasks of this level, 1 to 5.
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) level: Option<u8>,
    /// Only of these operators, by the catalogue's names, e.g. `torch.add,torch.nn.LayerNorm`.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Sizes of a task's first tensor; by default they are drawn.
    #[arg(long, value_name = "N[xN]...", value_parser = shape)]
    pub(crate) shape: Option<Shape>,
    /// Compose of functions and modules of transformers too, which the interpreter must have.
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

    /// Composes from them, of sizes that suit the window.
    pub(crate) fn grammar(
        &self,
        catalogues: &[Catalogue],
        window: WindowArg,
    ) -> Result<Grammar, Failure> {
        let mut library = Library::new(catalogues).map_err(|error| broken(&error))?;
        if !self.only.is_empty() {
            library = library.only(&self.only).map_err(|error| broken(&error))?;
        }
        let config = GrammarConfig {
            operators: self.operators.clone(),
            level: self.level.and_then(Level::new),
            budget: window.budget(),
            shape: self.shape.as_ref().map(|shape| shape.0.clone()),
        };
        Grammar::new(library, config).map_err(|error| broken(&error))
    }
}

fn broken(error: &dyn std::error::Error) -> Failure {
    Failure::usage(chain(error), None)
}

/// How long a call of eager may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WindowArg {
    /// 0.05 to 10 ms: thousands can be judged.
    Fast,
    /// 1 to 100 ms, the paper's.
    Paper,
    /// 0.1 to 50 ms, for the cpu device.
    Host,
}

impl WindowArg {
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
    sizes.map(Shape).ok_or_else(|| "not sizes such as 8192x4096".to_owned())
}

fn operators(text: &str) -> Result<RangeInclusive<usize>, String> {
    let number = |text: &str| text.trim().parse::<usize>().map_err(|_| "not a number".to_owned());
    let (least, most) = match text.split_once('-') {
        Some((least, most)) => (number(least)?, number(most)?),
        None => (number(text)?, number(text)?),
    };
    if (1..=most).contains(&least) && most <= 12 {
        Ok(least..=most)
    } else {
        Err("numbers from 1 to 12, the smaller one first".to_owned())
    }
}

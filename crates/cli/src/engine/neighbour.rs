//! An engine that shares its devices with judges: while a candidate is timed it computes nothing.

use std::path::Path;

use warpwright_judge::Neighbour;
use warpwright_learn::engine::{
    Completion, Description, Engine, Loss, Passed, Row, SampleRequest, Sampler, Scores, Step, Which,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Considerate<E> {
    engine: E,
    /// In the order in which their turns are waited for.
    neighbours: Vec<Neighbour>,
}

impl<E> Considerate<E> {
    pub(crate) fn new(engine: E, neighbours: Vec<Neighbour>) -> Self {
        Self { engine, neighbours }
    }

    /// Computes while nobody is measured on any device.
    fn compute<T>(&mut self, work: impl FnOnce(&mut E) -> T) -> T {
        fn within<T>(neighbours: &[Neighbour], work: impl FnOnce() -> T) -> T {
            match neighbours {
                [] => work(),
                [first, others @ ..] => first.compute(|| within(others, work)),
            }
        }
        within(&self.neighbours, || work(&mut self.engine))
    }
}

impl<E: Engine> Engine for Considerate<E> {
    type Error = E::Error;

    fn describe(&mut self) -> Result<Description, E::Error> {
        self.engine.describe()
    }

    fn begin_critic(&mut self) -> Result<(), E::Error> {
        self.compute(E::begin_critic)
    }

    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, E::Error> {
        self.compute(|engine| engine.score(rows))
    }

    fn backward(&mut self, rows: &[Row], loss: &Loss, over: f64) -> Result<Passed, E::Error> {
        self.compute(|engine| engine.backward(rows, loss, over))
    }

    fn step(&mut self, which: Which, step: &Step) -> Result<f64, E::Error> {
        self.compute(|engine| engine.step(which, step))
    }

    fn save(&mut self, folder: &Path) -> Result<(), E::Error> {
        self.compute(|engine| engine.save(folder))
    }
}

impl<E: Sampler> Sampler for Considerate<E> {
    type Error = E::Error;

    fn draw(
        &mut self,
        requests: Vec<SampleRequest>,
        steps: u32,
    ) -> Result<Vec<Completion>, E::Error> {
        self.compute(|engine| engine.draw(requests, steps))
    }
}

//! An engine that shares its device with a judge: while a candidate is timed it computes nothing.

use std::path::Path;

use warpwright_judge::Neighbour;
use warpwright_learn::engine::{
    Description, Engine, Loss, Passed, Prompt, Row, Sampled, Sampling, Scores, Step, Which,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Considerate<E> {
    engine: E,
    neighbour: Neighbour,
}

impl<E> Considerate<E> {
    pub(crate) fn new(engine: E, neighbour: Neighbour) -> Self {
        Self { engine, neighbour }
    }
}

impl<E: Engine> Engine for Considerate<E> {
    type Error = E::Error;

    fn describe(&mut self) -> Result<Description, E::Error> {
        self.engine.describe()
    }

    fn begin_critic(&mut self) -> Result<(), E::Error> {
        self.neighbour.compute(|| self.engine.begin_critic())
    }

    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, E::Error> {
        self.neighbour.compute(|| self.engine.score(rows))
    }

    fn backward(&mut self, rows: &[Row], loss: &Loss, over: f64) -> Result<Passed, E::Error> {
        self.neighbour.compute(|| self.engine.backward(rows, loss, over))
    }

    fn step(&mut self, which: Which, step: &Step) -> Result<f64, E::Error> {
        self.neighbour.compute(|| self.engine.step(which, step))
    }

    fn sample(
        &mut self,
        prompts: &[Prompt],
        sampling: &Sampling,
    ) -> Result<Vec<Sampled>, E::Error> {
        self.neighbour.compute(|| self.engine.sample(prompts, sampling))
    }

    fn save(&mut self, folder: &Path) -> Result<(), E::Error> {
        self.neighbour.compute(|| self.engine.save(folder))
    }
}

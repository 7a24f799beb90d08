//! An engine that shares its devices with judges: it pauses while a candidate is timed.

use std::path::Path;
use std::time::{Duration, Instant};

use warpwright_judge::{ModelWork, Neighbour};
use warpwright_learn::engine::{
    Completion, Description, Engine, Loss, Passed, Row, SampleRequest, Sampler, Scores, Step, Which,
};

/// See the module.
#[derive(Debug)]
pub struct DeviceSharingEngine<E> {
    engine: E,
    /// In a fixed order, in which their device is acquired.
    neighbours: Vec<Neighbour>,
    /// Number of running sequences.
    drawing: usize,
}

impl<E> DeviceSharingEngine<E> {
    pub fn new(engine: E, neighbours: Vec<Neighbour>) -> Self {
        Self { engine, neighbours, drawing: 0 }
    }

    /// Computes while no candidate is timed on any device.
    fn compute<T>(&mut self, what: ModelWork, work: impl FnOnce(&mut E) -> T) -> T {
        fn within<T>(neighbours: &[Neighbour], what: ModelWork, work: impl FnOnce() -> T) -> T {
            match neighbours {
                [] => work(),
                [first, others @ ..] => first.compute(what, || within(others, what, work)),
            }
        }
        within(&self.neighbours, what, || work(&mut self.engine))
    }
}

impl<E: Engine> Engine for DeviceSharingEngine<E> {
    type Error = E::Error;

    fn describe(&mut self) -> Result<Description, E::Error> {
        self.engine.describe()
    }

    fn begin_critic(&mut self) -> Result<(), E::Error> {
        self.compute(ModelWork::Train, E::begin_critic)
    }

    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, E::Error> {
        self.compute(ModelWork::Train, |engine| engine.score(rows))
    }

    fn backward(&mut self, rows: &[Row], loss: &Loss, over: f64) -> Result<Passed, E::Error> {
        self.compute(ModelWork::Train, |engine| engine.backward(rows, loss, over))
    }

    fn step(&mut self, which: Which, step: &Step) -> Result<f64, E::Error> {
        self.compute(ModelWork::Train, |engine| engine.step(which, step))
    }

    fn save(&mut self, folder: &Path) -> Result<(), E::Error> {
        self.compute(ModelWork::Save, |engine| engine.save(folder))
    }
}

impl<E: Sampler> Sampler for DeviceSharingEngine<E> {
    type Error = E::Error;

    fn draw(
        &mut self,
        requests: Vec<SampleRequest>,
        steps: u32,
    ) -> Result<Vec<Completion>, E::Error> {
        let (asked, mut drawing) = (Instant::now(), self.drawing + requests.len());
        let over = self.compute(ModelWork::Sample, |engine| {
            fairly(engine, requests, steps, &mut drawing, asked.elapsed())
        });
        self.drawing = if over.is_ok() { drawing } else { 0 };
        over
    }
}

/// Samples repeatedly, for as long as it waited for the device. A timed measurement takes a second
/// and more; with turns of some milliseconds after each, sampling would hardly progress.
fn fairly<E: Sampler>(
    engine: &mut E,
    requests: Vec<SampleRequest>,
    steps: u32,
    drawing: &mut usize,
    waited: Duration,
) -> Result<Vec<Completion>, E::Error> {
    let begun = Instant::now();
    let mut over = engine.draw(requests, steps)?;
    *drawing = drawing.saturating_sub(over.len());
    while *drawing > 0 && begun.elapsed() < waited {
        let more = engine.draw(Vec::new(), steps)?;
        *drawing = drawing.saturating_sub(more.len());
        over.extend(more);
    }
    Ok(over)
}

#[cfg(test)]
mod tests {
    use thiserror::Error;
    use warpwright_learn::engine::{Prompt, Refusal, Sampled, Sampling};

    use super::*;

    /// Takes a millisecond for a call; a sequence is over after as many as its prompt has tokens.
    #[derive(Default)]
    struct Slow {
        left: Vec<(u64, usize)>,
        calls: usize,
    }

    #[derive(Debug, Error)]
    #[error("it broke")]
    struct Broken;

    impl From<Refusal> for Broken {
        fn from(_: Refusal) -> Self {
            Self
        }
    }

    impl Sampler for Slow {
        type Error = Broken;

        fn draw(
            &mut self,
            requests: Vec<SampleRequest>,
            _: u32,
        ) -> Result<Vec<Completion>, Broken> {
            std::thread::sleep(Duration::from_millis(1));
            self.calls += 1;
            self.left.extend(requests.into_iter().map(|one| (one.ticket, one.prompt.ids.len())));
            for (_, left) in &mut self.left {
                *left -= 1;
            }
            let (over, left) = self.left.drain(..).partition(|(_, left)| *left == 0);
            self.left = left;
            let sampled = |(ticket, _)| Completion { ticket, sampled: Ok(Sampled::default()) };
            Ok(Vec::into_iter(over).map(sampled).collect())
        }
    }

    #[test]
    fn sampling_runs_as_long_as_it_waited() {
        let request = |ticket, tokens| SampleRequest {
            ticket,
            prompt: Prompt { ids: vec![0; tokens], stream: 0 },
            sampling: Sampling::default(),
        };
        let (mut engine, mut drawing) = (Slow::default(), 2);
        let requests = vec![request(1, 3), request(2, 1000)];
        let over = fairly(&mut engine, requests, 1, &mut drawing, Duration::ZERO).unwrap();
        assert_eq!((over.len(), drawing, engine.calls), (0, 2, 1));
        let (waited, begun) = (Duration::from_millis(400), Instant::now());
        let mut over = fairly(&mut engine, vec![], 1, &mut drawing, waited).unwrap();
        assert!(begun.elapsed() >= waited, "as long as it waited");
        // A call takes a millisecond or more.
        assert!((2..=402).contains(&engine.calls) && drawing > 0, "{}", engine.calls);
        over.extend(fairly(&mut engine, vec![], 1, &mut drawing, Duration::from_hours(1)).unwrap());
        let order: Vec<u64> = over.iter().map(|one| one.ticket).collect();
        assert_eq!((order, drawing, engine.calls), (vec![1, 2], 0, 1000));
    }
}

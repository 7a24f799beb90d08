//! Client and server of an engine in another process.

use std::io::{Read, Write};
use std::path::Path;

use thiserror::Error;

use crate::engine::{
    Completion, Description, Engine, Loss, Passed, Refusal, Row, SampleRequest, Sampler, Scores,
    Step, Which,
};
use crate::wire::{Answer, LineError, Request, greet, receive, send};

/// Why a request to an engine in another process failed.
#[derive(Debug, Error)]
pub enum RemoteError {
    /// The connection failed.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The engine refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl RemoteError {
    /// Whether a new engine process may succeed: the caller can restart the engine from the last
    /// checkpoint and repeat the request.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Line(_))
    }
}

/// A client of an engine over a line. After an error of the line it sends nothing more.
#[derive(Debug)]
pub struct RemoteEngine<L> {
    line: L,
    is_broken: bool,
}

impl<L: Read + Write> RemoteEngine<L> {
    /// Exchanges versions with the engine at the other end.
    pub fn greet(mut line: L) -> Result<Self, RemoteError> {
        greet(&mut line)?;
        Ok(Self { line, is_broken: false })
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, RemoteError> {
        if self.is_broken {
            // A late answer to an earlier request would be taken for this one's.
            return Err(LineError::Gone.into());
        }
        let answer = send(&mut self.line, request).and_then(|()| receive(&mut self.line));
        match answer {
            Ok(Answer::Refused(refusal)) => Err(refusal.into()),
            Ok(answer) => Ok(answer),
            Err(error) => {
                self.is_broken = true;
                Err(error.into())
            }
        }
    }

    fn done(&mut self, request: &Request) -> Result<(), RemoteError> {
        match self.ask(request)? {
            Answer::Done => Ok(()),
            other => Err(self.surprised(&other)),
        }
    }

    fn surprised(&mut self, answer: &Answer) -> RemoteError {
        self.is_broken = true;
        let name = match answer {
            Answer::Described(_) => "Described",
            Answer::Done => "done",
            Answer::Scored(_) => "scores",
            Answer::Passed(_) => "Passed",
            Answer::Stepped(_) => "Stepped",
            Answer::Drawn(_) => "Drawn",
            Answer::Refused(_) => "Refused",
        };
        LineError::Garbled(format!("the answer {name} does not match the request")).into()
    }
}

impl<L: Read + Write> Engine for RemoteEngine<L> {
    type Error = RemoteError;

    fn describe(&mut self) -> Result<Description, RemoteError> {
        match self.ask(&Request::Describe)? {
            Answer::Described(description) => Ok(description),
            other => Err(self.surprised(&other)),
        }
    }

    fn begin_critic(&mut self) -> Result<(), RemoteError> {
        self.done(&Request::BeginCritic)
    }

    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, RemoteError> {
        match self.ask(&Request::Score(rows.to_vec()))? {
            Answer::Scored(scores) => Ok(scores),
            other => Err(self.surprised(&other)),
        }
    }

    fn backward(&mut self, rows: &[Row], loss: &Loss, over: f64) -> Result<Passed, RemoteError> {
        match self.ask(&Request::Backward(rows.to_vec(), *loss, over))? {
            Answer::Passed(passed) => Ok(passed),
            other => Err(self.surprised(&other)),
        }
    }

    fn step(&mut self, which: Which, step: &Step) -> Result<f64, RemoteError> {
        match self.ask(&Request::Step(which, *step))? {
            Answer::Stepped(norm) => Ok(norm),
            other => Err(self.surprised(&other)),
        }
    }

    fn save(&mut self, folder: &Path) -> Result<(), RemoteError> {
        self.done(&Request::Save(folder.to_owned()))
    }
}

impl<L: Read + Write> Sampler for RemoteEngine<L> {
    type Error = RemoteError;

    fn draw(
        &mut self,
        requests: Vec<SampleRequest>,
        steps: u32,
    ) -> Result<Vec<Completion>, RemoteError> {
        match self.ask(&Request::Draw(requests, steps))? {
            Answer::Drawn(over) => Ok(over),
            other => Err(self.surprised(&other)),
        }
    }
}

/// Answers requests with an engine until the client disconnects. `refuse` converts an engine's
/// error to the client's refusal.
pub fn serve<E: Engine<Error = F> + Sampler<Error = F>, F>(
    line: &mut (impl Read + Write),
    engine: &mut E,
    refuse: impl Fn(&F) -> Refusal,
) -> Result<(), LineError> {
    greet(line)?;
    loop {
        let request = match receive(line) {
            Ok(request) => request,
            Err(LineError::Gone) => return Ok(()),
            Err(error) => return Err(error),
        };
        let answer = match request {
            Request::Describe => engine.describe().map(Answer::Described),
            Request::BeginCritic => engine.begin_critic().map(|()| Answer::Done),
            Request::Score(rows) => engine.score(&rows).map(Answer::Scored),
            Request::Backward(rows, loss, over) => {
                engine.backward(&rows, &loss, over).map(Answer::Passed)
            }
            Request::Step(which, step) => engine.step(which, &step).map(Answer::Stepped),
            Request::Draw(requests, steps) => engine.draw(requests, steps).map(Answer::Drawn),
            Request::Save(folder) => engine.save(&folder).map(|()| Answer::Done),
        };
        send(line, &answer.unwrap_or_else(|error| Answer::Refused(refuse(&error))))?;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;
    use crate::wire::{Hello, VERSION};

    fn lines() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    #[test]
    fn another_version_is_refused() {
        let (ours, mut theirs) = lines();
        send(&mut theirs, &Hello { version: VERSION + 1 }).unwrap();
        let error = RemoteEngine::greet(ours).unwrap_err();
        assert!(error.is_lost());
        assert!(error.to_string().contains(&format!("has protocol version {}", VERSION + 1)));
    }

    #[test]
    fn late_answer_after_timeout_is_discarded() {
        let (ours, mut theirs) = lines();
        ours.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        send(&mut theirs, &Hello { version: VERSION }).unwrap();
        let mut engine = RemoteEngine::greet(ours).unwrap();
        let error = engine.score(&[]).unwrap_err();
        assert!(matches!(error, RemoteError::Line(LineError::Silent)), "{error:?}");
        send(&mut theirs, &Answer::Scored(vec![])).unwrap();
        let error = engine.begin_critic().unwrap_err();
        assert!(matches!(error, RemoteError::Line(LineError::Gone)), "{error:?}");
    }

    #[test]
    fn mismatched_answer_is_an_error() {
        let (ours, mut theirs) = lines();
        send(&mut theirs, &Hello { version: VERSION }).unwrap();
        send(&mut theirs, &Answer::Stepped(1.0)).unwrap();
        let mut engine = RemoteEngine::greet(ours).unwrap();
        let error = engine.describe().unwrap_err().to_string();
        assert!(error.contains("the answer Stepped does not match the request"), "{error}");
    }

    #[test]
    fn lost_engine_differs_from_refusal() {
        let (ours, mut theirs) = lines();
        send(&mut theirs, &Hello { version: VERSION }).unwrap();
        let refusal = Refusal { is_memory: true, message: "too large".to_owned() };
        send(&mut theirs, &Answer::Refused(refusal.clone())).unwrap();
        let mut engine = RemoteEngine::greet(ours).unwrap();
        let error = engine.begin_critic().unwrap_err();
        assert!(!error.is_lost());
        assert!(matches!(error, RemoteError::Refused(found) if found == refusal));
        drop(theirs);
        assert!(engine.begin_critic().unwrap_err().is_lost());
    }
}

//! Creates the policies that `--policy` names.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warpwright_agent::policy::Policy;
use warpwright_agent::remote::endpoint::Endpoint;
use warpwright_agent::remote::policy::RemotePolicy;
use warpwright_agent::replay::{Replay, ReplayError};
use warpwright_task::Task;

use crate::Notice;
use crate::engine::EngineHost;
use crate::error::{RolloutError, chain};
use crate::natives::{self, NativeModel};
use crate::remote::{self, BaseUrls, RemoteOptions, Wire};

/// The name of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// The built-in policy.
    Teacher,
    /// The built-in policy, which measures every version that it can write.
    Searched,
    /// The recorded messages of a run.
    Replay(PathBuf),
    /// A model behind an endpoint.
    Remote(Wire, String),
    /// A checkpoint, by its folder.
    Native(PathBuf),
    /// The shipped model.
    Shipped,
}

impl PolicyName {
    /// Parses a name from the command line or a record.
    pub fn parse(text: &str) -> Result<Self, RolloutError> {
        match text.split_once(':') {
            None if text == "teacher" => Ok(Self::Teacher),
            None if text == "native" => Ok(Self::Shipped),
            Some(("teacher", "exhaustive")) => Ok(Self::Searched),
            Some(("replay", path)) if !path.is_empty() => Ok(Self::Replay(PathBuf::from(path))),
            Some(("native", path)) if !path.is_empty() => Ok(Self::Native(PathBuf::from(path))),
            Some((wire, model))
                if let Some(wire) = Wire::parse(wire)
                    && !model.is_empty() =>
            {
                Ok(Self::Remote(wire, model.to_owned()))
            }
            _ => {
                let hint = "policies are `teacher`, `teacher:exhaustive`, `native`, `openai:MODEL`, `responses:MODEL`, \
                    `anthropic:MODEL`, `native:CHECKPOINT` and `replay:RUN_DIR`";
                Err(RolloutError::usage(
                    format!("failed to find the policy {text}"),
                    hint.to_owned(),
                ))
            }
        }
    }

    /// The name with absolute paths, in the form that [`PolicyName::parse`] reads.
    pub fn absolute(&self) -> String {
        match self {
            Self::Teacher => "teacher".to_owned(),
            Self::Searched => "teacher:exhaustive".to_owned(),
            Self::Replay(path) => format!("replay:{}", absolute(path).display()),
            Self::Native(path) => format!("native:{}", absolute(path).display()),
            Self::Shipped => "native".to_owned(),
            Self::Remote(wire, model) => format!("{}:{model}", wire.name()),
        }
    }
}

/// An absolute path without `..`: a jail accepts no mount point with `..`. A missing path stays as
/// it is; opening it reports the error.
fn absolute(path: &Path) -> PathBuf {
    let found = path.canonicalize().or_else(|_| std::path::absolute(path));
    found.unwrap_or_else(|_| path.to_owned())
}

/// Creates a run's policies. Policies with the same wire format share one endpoint, and all
/// episodes of a checkpoint share its engine.
pub struct Policies {
    names: Vec<PolicyName>,
    endpoints: BTreeMap<Wire, Arc<Endpoint>>,
    /// Models by the folder of their checkpoint.
    natives: BTreeMap<PathBuf, NativeModel>,
    /// The shipped model.
    shipped: Option<NativeModel>,
    remote: RemoteOptions,
}

impl Policies {
    /// Opens no connection. Setting `stop` ends the wait for a server; `notice` reports a server
    /// that is unreachable.
    pub fn open(
        names: Vec<PolicyName>,
        remote: &RemoteOptions,
        base_urls: &BaseUrls,
        stop: &Arc<AtomicBool>,
        notice: Option<&Notice>,
    ) -> Result<Self, RolloutError> {
        let mut endpoints = BTreeMap::new();
        for name in &names {
            let PolicyName::Remote(wire, _) = name else { continue };
            if let Entry::Vacant(place) = endpoints.entry(*wire) {
                let url = remote::base_url(*wire, remote, base_urls);
                place.insert(remote::endpoint(*wire, remote, &url, Arc::clone(stop), notice)?);
            }
        }
        Ok(Self {
            names,
            endpoints,
            natives: BTreeMap::new(),
            shipped: None,
            remote: remote.clone(),
        })
    }

    /// Starts the engines of the checkpoints.
    pub fn with_engines(
        mut self,
        host: &EngineHost<'_>,
        cache: &Path,
    ) -> Result<Self, RolloutError> {
        for name in &self.names {
            if *name == PolicyName::Shipped && self.shipped.is_none() {
                self.shipped = Some(NativeModel::shipped(host, cache)?);
            }
            let PolicyName::Native(folder) = name else { continue };
            if let Entry::Vacant(place) = self.natives.entry(folder.clone()) {
                place.insert(NativeModel::open(host, folder)?);
            }
        }
        Ok(self)
    }

    /// Creates a policy by its number, for one task.
    pub fn make(&self, number: usize, task: &str) -> Result<Box<dyn Policy>, RolloutError> {
        match &self.names[number] {
            PolicyName::Teacher => Ok(Box::new(warpwright_teacher::Teacher::new())),
            PolicyName::Searched => Ok(Box::new(warpwright_teacher::Teacher::exhaustive())),
            PolicyName::Replay(path) => replay(path, task),
            name @ (PolicyName::Native(_) | PolicyName::Shipped) => {
                let model = match name {
                    PolicyName::Native(folder) => self.natives.get(folder),
                    _ => self.shipped.as_ref(),
                };
                model.map(NativeModel::policy).ok_or_else(|| {
                    let message =
                        format!("failed to use {}: its engine is not running", name.absolute());
                    RolloutError::infrastructure(message, None)
                })
            }
            PolicyName::Remote(wire, model) => {
                let settings = self.remote.settings(*wire, model);
                Ok(Box::new(RemotePolicy::new(Arc::clone(&self.endpoints[wire]), settings)))
            }
        }
    }
}

/// The base URLs of these policies, for the record.
pub fn base_urls(names: &[PolicyName], remote: &RemoteOptions) -> BaseUrls {
    let wires = names.iter().filter_map(|name| match name {
        PolicyName::Remote(wire, _) => Some(*wire),
        _ => None,
    });
    wires
        .map(|wire| (wire.name().to_owned(), remote::base_url(wire, remote, &BaseUrls::new())))
        .collect()
}

/// The names of policies with absolute paths. A missing trajectory, a missing key or an invalid URL
/// is found before anything is opened.
pub fn check(
    names: &[String],
    remote: &RemoteOptions,
    tasks: &[Task],
) -> Result<Vec<String>, RolloutError> {
    let mut checked = Vec::new();
    for name in names {
        let policy = PolicyName::parse(name)?;
        let policies = vec![policy.clone()];
        let made = Policies::open(policies, remote, &BaseUrls::new(), &Arc::default(), None)?;
        match &policy {
            PolicyName::Native(folder) => natives::look(folder)?,
            PolicyName::Shipped => {}
            _ => tasks.iter().try_for_each(|task| made.make(0, &task.name).map(|_| ()))?,
        }
        let name = policy.absolute();
        if checked.contains(&name) {
            let hint = "name it once; `--attempts K` runs several episodes of it".to_owned();
            return Err(RolloutError::usage(
                format!("failed to use the policies: {name} is named twice"),
                hint,
            ));
        }
        checked.push(name);
    }
    Ok(checked)
}

fn replay(path: &Path, task: &str) -> Result<Box<dyn Policy>, RolloutError> {
    match Replay::from_run(path, task) {
        Ok(replay) => Ok(Box::new(replay)),
        Err(ReplayError::Read(error)) => Err(error.into()),
        Err(error @ ReplayError::NoEpisode { .. }) => {
            let hint =
                "name a run of `warpwright optimize` with an episode of this task".to_owned();
            Err(RolloutError::usage(chain(&error), hint))
        }
    }
}

//! Jobs that nobody survived: kept with what is known of them, for people.

use super::bridge::{Asked, Bridge};
use super::files;
use super::link::{Link, LinkConfig, LinkError};
use super::notes::Parked;
use super::worker::{json, unpacked};
use crate::job::Failed;

impl Bridge {
    /// What could not be judged so far by anybody, oldest first.
    pub fn parked(config: &LinkConfig) -> Result<Vec<Parked>, LinkError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut link = Link::open(config).await?;
            let state = link.parked.info().await.map(|info| info.state.clone());
            let mut all = Vec::new();
            if let Ok(state) = state {
                for sequence in state.first_sequence..=state.last_sequence {
                    // Some may have gone.
                    let Ok(message) = link.parked.get_raw_message(sequence).await else { continue };
                    all.extend(serde_json::from_slice::<Parked>(&message.payload));
                }
            }
            Ok(all)
        })
    }

    /// Keeps what nobody survived, for people.
    pub(super) async fn park(&self, asked: Option<Asked>, id: &str, deliveries: i64) -> Failed {
        let message =
            format!("failed to judge: {deliveries} workers took this job and did not answer");
        let hint = Some(format!(
            "it is parked as {id}: `warpwright worker --parked DIR` has what was asked"
        ));
        let Some((order, workers)) = asked else {
            return Failed::Infrastructure { message, hint: None };
        };
        let get = async |file| files::get(&self.link, &self.link.files, file).await;
        let job = match (get(&order.task).await, get(&order.candidate).await) {
            (Ok(task), Ok(candidate)) => unpacked(&task, &candidate, &order).ok(),
            _ => None,
        };
        let files = job
            .iter()
            .flat_map(|job| job.candidate.files())
            .map(|(name, bytes)| (name.clone(), String::from_utf8_lossy(bytes).into_owned()));
        let parked = Parked {
            id: id.to_owned(),
            files: files.collect(),
            reference: job.as_ref().map(|job| job.task.source.clone()).unwrap_or_default(),
            task: order.name,
            stage: order.stage,
            deliveries,
            workers,
        };
        self.keep(parked).await;
        Failed::Infrastructure { message, hint }
    }

    async fn keep(&self, parked: Parked) {
        let Some(kind) = self.kind() else { return };
        let id = parked.id.clone();
        let subject = self.link.parked_subject(&kind.word());
        let _ = self.link.publish(subject, json(&parked), Some(&id)).await;
    }
}

//! Verdicts that do not count any more, as the caller last reported them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use warpwright_record::verdict::ReplayerTurn;
use warpwright_record::void::VoidTurns;

use crate::app::App;
use crate::request::Client;

/// The void verdicts of all judges of this host.
#[derive(Debug, Default)]
pub struct Voids(Mutex<Vec<VoidTurns>>);

impl Voids {
    /// Replaces what is known.
    pub fn say(&self, voids: Vec<VoidTurns>) {
        *self.lock() = voids;
    }

    /// Whether the verdict of this turn is void.
    pub(crate) fn covers(&self, turn: &ReplayerTurn) -> bool {
        self.lock().iter().any(|voided| voided.covers_turn(turn))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<VoidTurns>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `GET /void`: the turns of replayers whose verdicts are void. Tasks and candidates may be another client's.
pub(crate) async fn voids(State(app): State<Arc<App>>, _client: Client) -> Json<Value> {
    let told = |voided: &VoidTurns| {
        let VoidTurns { replayer, after, through, time, .. } = voided;
        json!({ "replayer": replayer, "after": after, "through": through, "time": time })
    };
    let voids: Vec<Value> = app.voids.lock().iter().map(told).collect();
    Json(json!({ "version": 1, "void": voids }))
}

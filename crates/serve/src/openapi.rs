//! The OpenAPI 3.1 document. Its schemas are generated from the types.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use warpwright_agent::tools::specification::specifications;

use crate::gym::{SeedSession, SeedSessionResponse, VerifyRequest, VerifyResponse};
use crate::judge::{BatchRequest, BatchResponse, JudgeRequest, JudgeResponse, Progress};
use crate::problem::{Kind, MEDIA_TYPE, Problem};
use crate::rewards::{OpenRlhf, OpenRlhfRewards, Slime};

/// Problems that every path may return.
const ANYWHERE: [Kind; 4] =
    [Kind::Unauthorized, Kind::TokenExpired, Kind::MisdirectedRequest, Kind::Internal];

/// The OpenAPI document, as `GET /openapi.json` returns it.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut schemas = settings.into_generator();
    let judging = [
        Kind::MalformedJson,
        Kind::InvalidRequest,
        Kind::UnsupportedMediaType,
        Kind::BodyTooLarge,
        Kind::UnknownTask,
        Kind::TaskRefused,
        Kind::IdempotencyKeyReused,
        Kind::Busy,
        Kind::DeadlineExceeded,
        Kind::Ending,
    ];
    let batching =
        [Kind::MalformedJson, Kind::InvalidRequest, Kind::UnsupportedMediaType, Kind::BodyTooLarge];
    let mut judge = operation::<JudgeRequest, JudgeResponse>(
        &mut schemas,
        "Judge a candidate",
        "Waits for the verdict. With `Accept: text/event-stream` the response is a stream of events: `progress`, \
         then one `result` or `problem`.",
        &judging,
    );
    judge["parameters"] = json!([{
        "name": "Idempotency-Key", "in": "header", "required": false,
        "description": "The server judges equal requests with the same key once. The response header \
                        `Idempotency-Replayed` says whether the response is a replay.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
    }]);
    judge["responses"]["200"]["content"]["text/event-stream"] =
        json!({ "schema": reference::<Progress>(&mut schemas) });
    let batch = operation::<BatchRequest, BatchResponse>(
        &mut schemas,
        "Judge several candidates",
        "Each item has its own result: a response or a problem.",
        &batching,
    );
    let rewarding =
        [&judging[..5], &[Kind::Busy, Kind::DeadlineExceeded, Kind::InfraError]].concat();
    let slime = operation::<Slime, f64>(
        &mut schemas,
        "Reward for slime's remote_rm",
        "The code blocks of `response` are the candidate. An infrastructure error is status 503, not a number.",
        &rewarding,
    );
    let openrlhf = operation::<OpenRlhf, OpenRlhfRewards>(
        &mut schemas,
        "Rewards for OpenRLHF's remote_rm_url",
        "The code blocks of each response are a candidate. If one has an infrastructure error, the status is 503.",
        &rewarding,
    );
    let beginning = [&judging[..5], &[Kind::Busy, Kind::InfraError, Kind::Ending]].concat();
    let seed = operation::<SeedSession, SeedSessionResponse>(
        &mut schemas,
        "Begin an episode (NeMo-Gym)",
        "The response sets the session's cookie.",
        &beginning,
    );
    let playing = [
        Kind::MalformedJson,
        Kind::UnsupportedMediaType,
        Kind::BodyTooLarge,
        Kind::UnknownSession,
        Kind::InfraError,
    ];
    let mut tool = operation::<Map<String, Value>, String>(
        &mut schemas,
        "Call a tool of the session (NeMo-Gym)",
        "The body has the tool's arguments; the response is the tool's text for the model.",
        &playing,
    );
    tool["parameters"] = json!([{
        "name": "tool", "in": "path", "required": true,
        "schema": { "enum": specifications().iter().map(|tool| tool.name).collect::<Vec<_>>() },
    }]);
    let plain = json!({ "text/plain": { "schema": { "type": "string" } } });
    tool["responses"]["200"]["content"] = plain;
    let verify = operation::<VerifyRequest, VerifyResponse>(
        &mut schemas,
        "End the session's episode and return its reward (NeMo-Gym)",
        "The judge judges the candidate in the workspace. An infrastructure error is status 503, not a number.",
        &playing,
    );
    let text = |summary: &str, kind: &str| {
        json!({ "summary": summary, "responses": { "200": {
            "description": "OK", "content": { kind: {} } } } })
    };
    let mut dashboard = text("The dashboard", "text/html");
    dashboard["security"] = json!([]);
    let mut one = text("A recent verdict of the client, with its candidate", "application/json");
    one["parameters"] = json!([{
        "name": "number", "in": "path", "required": true, "schema": { "type": "integer" },
    }]);
    let mut health =
        text("Health of the server: status, load, devices and remote workers", "application/json");
    health["security"] = json!([]);
    health["responses"]["503"] =
        json!({ "description": "The server has no judge worker, or is shutting down" });
    let mut openapi = text("This document", "application/json");
    openapi["security"] = json!([]);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Warpwright",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Judges CUDA kernels: verdicts and rewards for RL trainers",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "security": [{ "token": [] }],
        "paths": {
            "/judge": { "post": judge },
            "/judge/batch": { "post": batch },
            "/reward/slime": { "post": slime },
            "/reward/openrlhf": { "post": openrlhf },
            "/seed_session": { "post": seed },
            "/{tool}": { "post": tool },
            "/verify": { "post": verify },
            "/gym/rows.jsonl": { "get": text("One NeMo-Gym data-set row per served task", "application/jsonl") },
            "/ws": { "get": {
                "summary": "Episodes over a WebSocket (OpenEnv)",
                "description": "Messages: `reset`, `step`, `state`, `close`. `/schema` describes the actions.",
                "responses": { "101": { "description": "A WebSocket" } },
            } },
            "/schema": { "get": text("JSON Schemas of OpenEnv's actions, observations and state", "application/json") },
            "/metadata": { "get": text("OpenEnv's metadata of this environment", "application/json") },
            "/": { "get": dashboard },
            "/dashboard/state": { "get": text("Data of the dashboard: load, devices, the client's verdicts after number `after`", "application/json") },
            "/dashboard/verdicts/{number}": { "get": one },
            "/tasks": { "get": text("Names of the served tasks", "application/json") },
            "/void": { "get": text("Turns of replayers whose verdicts do not count any more", "application/json") },
            "/health": { "get": health },
            "/metrics": { "get": text("Prometheus metrics", "application/openmetrics-text") },
            "/openapi.json": { "get": openapi },
        },
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn reference<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    schemas.subschema_for::<T>().to_value()
}

fn operation<Q: JsonSchema, A: JsonSchema>(
    schemas: &mut SchemaGenerator,
    summary: &str,
    description: &str,
    problems: &[Kind],
) -> Value {
    let (asked, answered) = (reference::<Q>(schemas), reference::<A>(schemas));
    let problem = reference::<Problem>(schemas);
    let mut responses = json!({
        "200": { "description": "OK", "content": { "application/json": { "schema": answered } } },
    });
    for kind in problems.iter().chain(&ANYWHERE) {
        let status = kind.status().as_u16().to_string();
        let before = responses[&status]["description"].as_str().map(|text| format!("{text}; "));
        let description = format!("{}{}", before.unwrap_or_default(), kind.title());
        responses[&status] = json!({
            "description": description,
            "content": { MEDIA_TYPE: { "schema": problem } },
        });
    }
    json!({
        "summary": summary,
        "description": description,
        "requestBody": {
            "required": true, "content": { "application/json": { "schema": asked } },
        },
        "responses": responses,
    })
}

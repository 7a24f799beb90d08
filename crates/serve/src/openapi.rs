//! The document that says what is served (OpenAPI 3.1). Its schemas are those of the types.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use warpwright_agent::tools::specification::specifications;

use crate::gym::{SeedSession, SeedSessionResponse, VerifyRequest, VerifyResponse};
use crate::judge::{BatchRequest, BatchResponse, JudgeRequest, JudgeResponse, Progress};
use crate::problem::{Kind, MEDIA_TYPE, Problem};
use crate::rewards::{OpenRlhf, OpenRlhfRewards, Slime};

/// Problems that any path may answer with.
const ANYWHERE: [Kind; 4] =
    [Kind::Unauthorized, Kind::TokenExpired, Kind::MisdirectedRequest, Kind::Internal];

/// The document.
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
        "Waits for the verdict. With `Accept: text/event-stream` the answer is events: `progress`, then \
         `result` or `problem`.",
        &judging,
    );
    judge["parameters"] = json!([{
        "name": "Idempotency-Key", "in": "header", "required": false,
        "description": "The same question with the same key is asked once; answers say by \
                        `Idempotency-Replayed` whether it was asked before.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
    }]);
    judge["responses"]["200"]["content"]["text/event-stream"] =
        json!({ "schema": reference::<Progress>(&mut schemas) });
    let batch = operation::<BatchRequest, BatchResponse>(
        &mut schemas,
        "Judge several candidates",
        "Each as if it were asked alone: what is wrong with one is told in its place.",
        &batching,
    );
    let rewarding =
        [&judging[..5], &[Kind::Busy, Kind::DeadlineExceeded, Kind::InfraError]].concat();
    let slime = operation::<Slime, f64>(
        &mut schemas,
        "A reward, as slime's remote_rm asks",
        "The code blocks of `response` are the candidate. Our own failure is no number but 503.",
        &rewarding,
    );
    let openrlhf = operation::<OpenRlhf, OpenRlhfRewards>(
        &mut schemas,
        "Rewards, as OpenRLHF asks its remote_rm_url",
        "The code blocks of each answer are a candidate. Our own failure at one is no number but 503.",
        &rewarding,
    );
    let beginning = [&judging[..5], &[Kind::Busy, Kind::InfraError, Kind::Ending]].concat();
    let seed = operation::<SeedSession, SeedSessionResponse>(
        &mut schemas,
        "Begin an episode, as NeMo-Gym does",
        "The session is the cookie that this sets.",
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
        "Have a tool of the session do something",
        "The body is the tool's arguments, the answer its text for the model.",
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
        "End the session's episode: its reward",
        "What lies in the workspace is judged afresh. Our own failure is no number but 503.",
        &playing,
    );
    let text = |summary: &str, kind: &str| {
        json!({ "summary": summary, "responses": { "200": {
            "description": "It", "content": { kind: {} } } } })
    };
    let mut dashboard = text("A page to look at", "text/html");
    dashboard["security"] = json!([]);
    let mut one = text("One of the client's last verdicts, with its candidate", "application/json");
    one["parameters"] = json!([{
        "name": "number", "in": "path", "required": true, "schema": { "type": "integer" },
    }]);
    let mut health = text("Whether somebody judges", "application/json");
    health["security"] = json!([]);
    health["responses"]["503"] = json!({ "description": "Nobody does, or the server is ending" });
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
            "/gym/rows.jsonl": { "get": text("A row for each task that is served, as NeMo-Gym has them", "application/jsonl") },
            "/ws": { "get": {
                "summary": "Episodes as OpenEnv has them, over a WebSocket",
                "description": "`reset`, `step`, `state`, `close`; `/schema` says what actions are.",
                "responses": { "101": { "description": "A WebSocket" } },
            } },
            "/schema": { "get": text("What OpenEnv's actions and observations are", "application/json") },
            "/metadata": { "get": text("What OpenEnv's clients are told of this environment", "application/json") },
            "/": { "get": dashboard },
            "/dashboard/state": { "get": text("What the page at `/` shows: load, devices, the client's verdicts after `after`", "application/json") },
            "/dashboard/verdicts/{number}": { "get": one },
            "/tasks": { "get": text("Names of the tasks that are served", "application/json") },
            "/health": { "get": health },
            "/metrics": { "get": text("Figures for Prometheus", "application/openmetrics-text") },
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
        "200": { "description": "Judged", "content": { "application/json": { "schema": answered } } },
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

//! Tests of the program through its command line: exit code, stdout, stderr.
#![expect(clippy::unwrap_used, reason = "tests")]

mod analyzing;
mod backward;
mod bad_input;
mod casting;
mod composing;
mod evaluating;
mod exporting;
mod extracting;
mod far;
mod first_contact;
mod fitting;
mod guides;
mod judging;
mod linting;
mod many;
mod measuring;
mod native;
#[expect(dead_code, reason = "shared with the tests of the fleet, which use all of it")]
#[path = "../../../fleet/tests/nats/server.rs"]
mod nats;
mod program;
mod records;
mod rejudging;
mod replaying;
mod resuming;
#[expect(dead_code, reason = "shared with the tests of the report, which use all of it")]
#[path = "../../../record/tests/it/sample.rs"]
mod sample;
mod server;
mod serving;
#[path = "../../../report/tests/it/suite.rs"]
mod suite;
mod synthesis;
mod training;
mod workloads;

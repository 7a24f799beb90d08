//! Words without tools, in each format.

use std::sync::Arc;

use warpwright_record::message::{StopReason, Usage};

use super::dialogues::settings;
use super::server::{Say, Server};
use super::{endpoint, fixture, quick};
use crate::remote::anthropic::Anthropic;
use crate::remote::endpoint::EndpointError;
use crate::remote::openai_chat::OpenAiChat;
use crate::remote::openai_responses::OpenAiResponses;
use crate::remote::speaker::{Line, Speaker};
use crate::remote::wire::WireFormat;

fn speaker(format: Box<dyn WireFormat>, server: &Server) -> Speaker {
    let mut settings = settings();
    settings.sampling.token_ids = true;
    Speaker::new(endpoint(format, server, quick()), settings)
}

#[test]
fn conversation_request_has_no_tools_and_returns_text() {
    let formats: [(Box<dyn WireFormat>, &str, &str); 3] = [
        (Box::new(OpenAiChat), "openai_chat/text.sse", "/messages"),
        (Box::new(OpenAiResponses), "openai_responses/text.sse", "/input"),
        (Box::new(Anthropic), "anthropic/text.sse", "/messages"),
    ];
    for (format, name, place) in formats {
        let server = Server::start(vec![Say::stream(fixture(name))]);
        let speaker = speaker(format, &server);
        let said = speaker
            .ask(
                "Be brief.",
                &[
                    Line::User("One.".to_owned()),
                    Line::Assistant("Two.".to_owned()),
                    Line::User("Three.".to_owned()),
                ],
            )
            .unwrap();
        assert_eq!((said.text.as_str(), said.stop), ("The kernels are done.", StopReason::Done));
        assert_eq!(said.attempts, 1);
        let Usage { input_tokens, output_tokens, dollars, .. } = said.usage;
        assert!(input_tokens > 0 && output_tokens > 0 && dollars.unwrap() > 0.0, "{name}");
        let body = &server.asked()[0].body;
        assert!(body.get("tools").is_none() && body.get("return_token_ids").is_none(), "{body}");
        assert!(body.to_string().contains("Be brief."));
        let texts = body.pointer(place).unwrap().to_string();
        let at = |word: &str| texts.find(word).unwrap();
        assert!(at("One.") < at("Two.") && at("Two.") < at("Three."), "{texts}");
        assert!(texts.contains(r#""role":"assistant""#), "{texts}");
    }
}

#[test]
fn refused_key_fails_both_conversations_of_an_endpoint() {
    let server = Server::start(vec![Say::json(401, r#"{"error":"no such key"}"#)]);
    let endpoint = endpoint(Box::new(OpenAiChat), &server, quick());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let speaker = Speaker::new(Arc::clone(&endpoint), settings());
            scope.spawn(move || {
                let error = speaker.ask("", &[Line::User("One.".to_owned())]).unwrap_err();
                assert!(matches!(error, EndpointError::Key { status: 401, .. }), "{error}");
            });
        }
    });
    assert_eq!(server.asked().len(), 2);
}

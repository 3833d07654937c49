//! Errors of Kafka as diagnostics: which of them may pass by themselves, and what to do about the others.

use krafka::{
    KrafkaError,
    error::{ErrorCode, ProtocolErrorKind},
};
use lockstep_diagnostic::{Diagnostic, Kind, code};

/// Makes the error of a cluster that cannot be reached.
pub(crate) fn cluster_error(addresses: &str, error: &KrafkaError) -> Box<Diagnostic> {
    match error {
        KrafkaError::Auth { .. } | KrafkaError::Config { .. } => client_error(error),
        _ => {
            let message = format!("could not connect to Kafka at `{addresses}`");
            let diagnostic = Diagnostic::new(code::NOT_CONNECTED, message);
            Box::new(
                diagnostic.with_kind(Kind::Retry).with_detail(sentence(error)).with_hint(
                    "Check that a broker runs there, and that `tls` is what it expects.",
                ),
            )
        }
    }
}

/// Makes the error of a topic that cannot be read or written.
pub(crate) fn topic_error(topic: &str, error: &KrafkaError) -> Box<Diagnostic> {
    match error {
        KrafkaError::UnknownTopic { .. }
        | KrafkaError::Broker { code: ErrorCode::UnknownTopicOrPartition, .. } => no_topic(topic),
        KrafkaError::Broker {
            code:
                ErrorCode::TopicAuthorizationFailed
                | ErrorCode::TransactionalIdAuthorizationFailed
                | ErrorCode::ClusterAuthorizationFailed,
            ..
        } => {
            let message = format!("Kafka denies access to topic `{topic}`");
            Box::new(
                Diagnostic::new(code::INSUFFICIENT_PRIVILEGE, message)
                    .with_detail(sentence(error))
                    .with_hint("Grant the user of `sasl_username` access to the topic in Kafka."),
            )
        }
        KrafkaError::Fenced { .. }
        | KrafkaError::Broker {
            code: ErrorCode::ProducerFenced | ErrorCode::InvalidProducerEpoch,
            ..
        } => {
            let message = format!("another process writes to topic `{topic}` as this sink");
            Box::new(
                Diagnostic::new(code::DATABASE_IN_USE, message)
                    .with_detail(sentence(error))
                    .with_hint(
                        "Stop the other copy of this database, or drop the sink in one of them.",
                    ),
            )
        }
        KrafkaError::Auth { .. } | KrafkaError::Config { .. } => client_error(error),
        _ => {
            let kind = if is_temporary(error) { Kind::Retry } else { Kind::FixData };
            let message = format!("could not use topic `{topic}`");
            let diagnostic = Diagnostic::new(code::CONNECTION_FAILURE, message);
            Box::new(diagnostic.with_kind(kind).with_detail(sentence(error)))
        }
    }
}

/// Makes the error of a consumer group that this process cannot take part in, or whose notes cannot be read or written.
pub(crate) fn group_error(group: &str, error: &KrafkaError) -> Box<Diagnostic> {
    match error {
        KrafkaError::Broker { code: ErrorCode::OffsetMetadataTooLarge, .. } => {
            let message = format!("the progress of streams is too long for group `{group}`");
            Box::new(
                Diagnostic::new(code::VALUE_TOO_LARGE, message)
                    .with_kind(Kind::FreeResources)
                    .with_hint(
                        "Raise `offset.metadata.max.bytes` of the brokers, or use another group for \
                         some of the sources and streams.",
                    ),
            )
        }
        KrafkaError::Broker {
            code: ErrorCode::GroupAuthorizationFailed | ErrorCode::TopicAuthorizationFailed,
            ..
        } => {
            let message = format!("Kafka denies access to group `{group}`");
            Box::new(
                Diagnostic::new(code::INSUFFICIENT_PRIVILEGE, message)
                    .with_detail(sentence(error))
                    .with_hint(
                        "Grant the user of `sasl_username` access to the group and its topics in \
                         Kafka.",
                    ),
            )
        }
        KrafkaError::Protocol { kind: ProtocolErrorKind::UnknownApiVersion, .. }
        | KrafkaError::Broker { code: ErrorCode::UnsupportedVersion, .. } => {
            let message = format!("the brokers have no group `{group}`");
            let diagnostic = Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message);
            Box::new(
                diagnostic
                    .with_detail(sentence(error))
                    .with_hint("Groups require Kafka 4.0 or later."),
            )
        }
        KrafkaError::Auth { .. } | KrafkaError::Config { .. } => client_error(error),
        _ => {
            let message = format!("could not work in group `{group}`");
            let diagnostic = Diagnostic::new(code::CONNECTION_FAILURE, message);
            Box::new(diagnostic.with_kind(Kind::Retry).with_detail(sentence(error)))
        }
    }
}

/// Makes the error of a topic that does not exist. It may be created, and a broker that has just started does not know
/// all topics yet.
pub(crate) fn no_topic(topic: &str) -> Box<Diagnostic> {
    let message = format!("topic `{topic}` does not exist");
    let diagnostic = Diagnostic::new(code::UNDEFINED_OBJECT, message);
    Box::new(diagnostic.with_kind(Kind::Retry).with_hint("Create the topic in Kafka."))
}

/// Makes the error of a topic in which another writer has a transaction open, behind which nobody sees messages.
pub(crate) fn open_transaction(topic: &str) -> Box<Diagnostic> {
    let message = format!("another transaction in topic `{topic}` is still open");
    Box::new(
        Diagnostic::new(code::CONNECTION_FAILURE, message)
            .with_kind(Kind::Retry)
            .with_detail("The last messages of this sink are visible when it ends."),
    )
}

/// Makes the error of a login or an option that is wrong.
fn client_error(error: &KrafkaError) -> Box<Diagnostic> {
    let diagnostic = match error {
        KrafkaError::Auth { .. } => {
            Diagnostic::new(code::INVALID_AUTHORIZATION, "Kafka refuses the login")
                .with_hint("Check `sasl_mechanism`, `sasl_username`, `sasl_password` and `tls`.")
        }
        _ => Diagnostic::new(code::INVALID_PARAMETER, "invalid options for Kafka"),
    };
    Box::new(diagnostic.with_detail(sentence(error)))
}

/// Whether an error may pass by itself.
fn is_temporary(error: &KrafkaError) -> bool {
    error.is_retriable()
        || error.requires_abort()
        || matches!(
            error,
            KrafkaError::DeliveryTimeout { .. }
                | KrafkaError::TransactionAbortable { .. }
                | KrafkaError::OutOfOrderSequence { .. }
                | KrafkaError::Closed { .. }
                | KrafkaError::IllegalState { .. }
        )
}

/// Returns an error's text as a sentence.
pub(crate) fn sentence(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let mut characters = text.trim_end_matches('.').chars();
    let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", characters.as_str())
}

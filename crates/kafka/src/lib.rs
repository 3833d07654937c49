//! Topics of Kafka: messages read from given offsets on, and messages written, each once; and the registry of their
//! schemas.
//!
//! `engine` calls it: a source reads with [`TopicReader`] and stores the offsets with the rows, a sink writes with
//! [`TopicWriter`] and finds out with [`Topic::last_position`] what of its last transaction was committed; both ask a
//! [`RegistryClient`] about schemas. Nothing here knows tables, or the format of a message.
//!
//! All calls wait on the caller's thread. The connections live on one thread of the process.
//!
//! # Errors
//!
//! An error with [`Kind::Retry`](lockstep_diagnostic::Kind::Retry) may pass by itself: no broker answers, a topic has no
//! leader. Others need a change: of an option, of a privilege, or of the topic.

mod brokers;
mod error;
mod group;
mod merge;
mod reader;
mod registry;
mod runtime;
#[cfg(test)]
mod tests;
mod topic;
mod writer;

pub use brokers::{Brokers, Sasl, SaslMechanism, Tls};
pub use bytes::Bytes;
pub use group::{Claims, GroupMember, GroupNote, PartitionName};
pub use reader::{MessageBatch, ReadEnd, ReadPartitions, TopicMessage, TopicReader};
pub use registry::{RegisteredSchema, RegistryClient, SchemaLanguage, SchemaRegistry};
pub use topic::{Offsets, Topic, TopicPosition, TopicStart};
pub use writer::{Delivery, OutgoingMessage, TopicWriter};

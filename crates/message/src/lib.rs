//! Values of messages with a schema: Avro and Protobuf, in the frames of schema registries.
//!
//! A frame is a zero byte, the id of the schema as four bytes, big-endian, and the encoded value; Protobuf has the path of
//! the message within the schema between them. This is the wire format of Confluent's serializers, which other registries
//! share.
//!
//! `engine` calls it: a source reads values with an [`AvroReader`] or a [`ProtobufReader`] for each schema, a sink writes
//! them with an [`AvroWriter`] or a [`ProtobufWriter`]. Nothing here knows tables or connects to a registry.
//!
//! # Errors
//!
//! An error is a phrase that says what is wrong with the schema or the value; the caller knows which one it was.

mod avro;
mod frame;
mod name;
mod protobuf;
#[cfg(test)]
mod tests;

pub use avro::{AvroReader, AvroWriter, avro_schema};
pub use frame::schema_id;
pub use protobuf::{ProtobufReader, ProtobufWriter, protobuf_schema};

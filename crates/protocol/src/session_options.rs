//! Flight's messages about the options of a session, which its library for Rust lacks.
//!
//! They are those of `Flight.proto`.

use std::collections::HashMap;

use prost::{Enumeration, Message, Oneof};

/// The value of an option.
#[derive(Clone, PartialEq, Message)]
pub struct SessionOptionValue {
    /// The value; none: the option is to be unset.
    #[prost(oneof = "OptionContent", tags = "1, 2, 3, 4, 5")]
    pub value: Option<OptionContent>,
}

/// The forms of a value.
#[derive(Clone, PartialEq, Oneof)]
pub enum OptionContent {
    /// A text.
    #[prost(string, tag = "1")]
    Text(String),
    /// A boolean.
    #[prost(bool, tag = "2")]
    Flag(bool),
    /// A whole number.
    #[prost(sfixed64, tag = "3")]
    Integer(i64),
    /// A number.
    #[prost(double, tag = "4")]
    Number(f64),
    /// Texts.
    #[prost(message, tag = "5")]
    List(StringList),
}

/// Texts.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StringList {
    /// The texts.
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

/// The body of the action `SetSessionOptions`.
#[derive(Clone, PartialEq, Message)]
pub struct SetSessionOptionsRequest {
    /// The options by name.
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

/// Why an option was not set.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct OptionError {
    /// The reason.
    #[prost(enumeration = "OptionErrorValue", tag = "1")]
    pub value: i32,
}

/// The reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum OptionErrorValue {
    /// Not said.
    Unspecified = 0,
    /// There is no such option.
    InvalidName = 1,
    /// The option does not take the value.
    InvalidValue = 2,
    /// Something else.
    Error = 3,
}

/// The result of the action `SetSessionOptions`: the options that were not set.
#[derive(Clone, PartialEq, Message)]
pub struct SetSessionOptionsResult {
    /// The errors by name.
    #[prost(map = "string, message", tag = "1")]
    pub errors: HashMap<String, OptionError>,
}

/// The result of the action `GetSessionOptions`.
#[derive(Clone, PartialEq, Message)]
pub struct GetSessionOptionsResult {
    /// The options by name.
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

/// The result of the action `CloseSession`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CloseSessionResult {
    /// 1: closed; 3: there is none.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

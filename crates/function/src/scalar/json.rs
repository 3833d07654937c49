//! Functions of JSON documents in texts.
//!
//! Each call parses its document on the heap; results are in the arena.

use lockstep_row::{Arena, DataType, Datum};
use serde_json::Value;

use super::{
    CallArguments, Resolved, ScalarFunction, ScalarImplementation,
    signature::{TEXT, expect},
};

pub(super) static FUNCTIONS: &[ScalarFunction] = &[
    ScalarFunction {
        name: "get_json_object",
        aliases: &[],
        category: "JSON",
        signature: "get_json_object(json STRING, pointer STRING) → STRING",
        doc: "Returns the value in `json` that the JSON pointer `pointer` (RFC 6901) identifies: a string without its quotes, any other value as JSON text. The empty pointer identifies the whole document. NULL if `json` is not valid JSON or does not contain the value.",
        examples: &[
            ("get_json_object('{\"a\": [1, {\"b\": \"x\"}]}', '/a/1/b')", "x"),
            ("get_json_object('{\"a\": [1, 2]}', '/a')", "[1,2]"),
            ("get_json_object('{\"a\": 1}', '/b')", "NULL"),
            ("get_json_object('no json', '')", "NULL"),
        ],
        resolve: get_json_object,
    },
    ScalarFunction {
        name: "json_array_length",
        aliases: &[],
        category: "JSON",
        signature: "json_array_length(json STRING) → INT",
        doc: "Returns the number of elements of the outermost array in `json`. NULL if `json` is not a valid JSON array.",
        examples: &[
            ("json_array_length('[1, [2, 3], null]')", "3"),
            ("json_array_length('[]')", "0"),
            ("json_array_length('{}')", "NULL"),
            ("json_array_length('[1,')", "NULL"),
        ],
        resolve: json_array_length,
    },
];

fn get_json_object(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT, TEXT])?;
    let parameters = vec![DataType::String; 2];
    Ok(ScalarImplementation::new(parameters, DataType::String, |arguments, arena| {
        let text = find(arguments[0].as_str()?, arguments[1].as_str()?, arena)?;
        Some(Datum::String(text))
    }))
}

fn find<'a>(json: &str, pointer: &str, arena: &'a Arena) -> Option<&'a str> {
    let document: Value = serde_json::from_str(json).ok()?;
    Some(match document.pointer(pointer)? {
        Value::String(text) => arena.alloc_str(text),
        value => arena.alloc_str(&value.to_string()),
    })
}

fn json_array_length(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT])?;
    let parameters = vec![DataType::String];
    Ok(ScalarImplementation::new(parameters, DataType::Int, |arguments, _| {
        let elements: Vec<Value> = serde_json::from_str(arguments[0].as_str()?).ok()?;
        Some(Datum::Int(i32::try_from(elements.len()).ok()?))
    }))
}

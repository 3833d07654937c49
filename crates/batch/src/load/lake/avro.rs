//! The reader of Avro's object container files, in which Iceberg has its lists of files.
//!
//! A file has its own schema, by which each value is read; no other schema is applied. Blocks may
//! be compressed with deflate or Zstandard. Types that refer to themselves are refused: Iceberg has
//! none. A damaged file is an error, and never takes more memory than its size allows.

use std::{collections::BTreeMap, fmt, io::Read, sync::Arc};

use serde_json::Value as Json;

/// How a container file begins.
const MAGIC: &[u8] = b"Obj\x01";

/// The length of the mark between blocks.
const SYNC_BYTES: usize = 16;

/// The most bytes of a block when it is not compressed.
const BLOCK_BYTES_MAX: u64 = 1 << 30;

/// The most types in each other.
const DEPTH_MAX: usize = 64;

/// The most values of a block for each of its bytes: records and NULLs have none of their own.
const VALUES_PER_BYTE_MAX: usize = 16;

/// What is wrong with a file; a sentence without its dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AvroError(String);

impl fmt::Display for AvroError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

type Result<T> = std::result::Result<T, AvroError>;

fn fail<T>(what: impl Into<String>) -> Result<T> {
    Err(AvroError(what.into()))
}

/// A value. Names of enums are texts, and `fixed` values bytes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AvroValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Bytes(Vec<u8>),
    Text(String),
    Array(Vec<Self>),
    Map(Vec<(String, Self)>),
    Record(Arc<RecordType>, Vec<Self>),
}

impl AvroValue {
    /// Returns a field of a record, unless it is NULL or not there.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        let Self::Record(of, values) = self else { return None };
        debug_assert_eq!(of.fields.len(), values.len(), "a record has all its fields");
        let at = of.fields.iter().position(|(known, _)| known == name)?;
        Some(&values[at]).filter(|value| **value != Self::Null)
    }

    /// Returns a field that is an integer.
    pub(super) fn integer(&self, name: &str) -> Option<i64> {
        match self.field(name)? {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns a field that is a text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.field(name)? {
            Self::Text(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the fields of a record in their order.
    pub(super) fn values(&self) -> &[Self] {
        match self {
            Self::Record(_, values) => values,
            _ => &[],
        }
    }
}

/// A record type: the names and types of its fields.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecordType {
    fields: Vec<(String, AvroType)>,
}

#[derive(Debug, Clone, PartialEq)]
enum AvroType {
    Null,
    Bool,
    Integer,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum(Arc<Vec<String>>),
    Array(Arc<Self>),
    Map(Arc<Self>),
    Union(Arc<Vec<Self>>),
    Record(Arc<RecordType>),
}

/// An Avro file.
#[derive(Debug)]
pub(super) struct AvroFile {
    /// The texts of its header by their names.
    pub(super) header: BTreeMap<String, String>,
    pub(super) rows: Vec<AvroValue>,
}

impl AvroFile {
    /// Reads all of a file.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return fail("The file is not an Avro file");
        };
        let mut file = AvroCursor::new(rest);
        let mut header = BTreeMap::new();
        file.blocks(&mut |file| {
            let name = file.text()?;
            let value = file.sized()?;
            header.insert(name, String::from_utf8_lossy(value).into_owned());
            Ok(())
        })?;
        let sync = file.take(SYNC_BYTES)?.to_vec();
        let Some(schema) = header.get("avro.schema") else { return fail("The file has no schema") };
        let schema = serde_json::from_str(schema)
            .map_err(|error| AvroError(format!("The schema is not valid JSON: {error}")))?;
        let row_type = TypeReader::default().read(&schema, 0)?;
        let codec = header.get("avro.codec").map_or("null", String::as_str).to_owned();
        let mut rows = Vec::new();
        while !file.bytes.is_empty() {
            let count = file.count()?;
            let block = decompressed(&codec, file.sized()?)?;
            if count > block.len() {
                return fail("A block contains fewer values than its header specifies");
            }
            let mut block = AvroCursor::new(&block);
            for _ in 0..count {
                rows.push(block.value(&row_type)?);
            }
            if !block.bytes.is_empty() || file.take(SYNC_BYTES)? != sync {
                return fail("A block does not end at a sync marker of the file");
            }
        }
        Ok(Self { header, rows })
    }
}

/// Returns the bytes of a block.
fn decompressed(codec: &str, block: &[u8]) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    let read = match codec {
        "null" => return Ok(block.to_vec()),
        "deflate" => {
            let decoder = flate2::read::DeflateDecoder::new(block);
            decoder.take(BLOCK_BYTES_MAX + 1).read_to_end(&mut plain)
        }
        "zstandard" => zstd::Decoder::new(block)
            .and_then(|decoder| decoder.take(BLOCK_BYTES_MAX + 1).read_to_end(&mut plain)),
        other => return fail(format!("Compression `{other}` is not supported")),
    };
    match read.map(u64::try_from) {
        Ok(Ok(size)) if size <= BLOCK_BYTES_MAX => Ok(plain),
        Ok(_) => fail("A block exceeds the limit of 1 GiB"),
        Err(error) => fail(format!("A block could not be decompressed: {error}")),
    }
}

/// Reads types from their JSON.
#[derive(Debug, Default)]
struct TypeReader {
    /// The types that have names.
    named: BTreeMap<String, AvroType>,
}

impl TypeReader {
    fn read(&mut self, json: &Json, depth: usize) -> Result<AvroType> {
        if depth > DEPTH_MAX {
            return fail(format!("The schema nests types more than {DEPTH_MAX} levels deep"));
        }
        match json {
            Json::String(name) => self.of_name(name),
            Json::Array(members) => {
                let members = members.iter().map(|member| self.read(member, depth + 1));
                Ok(AvroType::Union(Arc::new(members.collect::<Result<_>>()?)))
            }
            Json::Object(_) => self.complex(json, depth),
            _ => fail("The schema contains an invalid type"),
        }
    }

    fn of_name(&self, name: &str) -> Result<AvroType> {
        Ok(match name {
            "null" => AvroType::Null,
            "boolean" => AvroType::Bool,
            "int" | "long" => AvroType::Integer,
            "float" => AvroType::Float,
            "double" => AvroType::Double,
            "bytes" => AvroType::Bytes,
            "string" => AvroType::Text,
            name => match self.named.get(name) {
                Some(known) => known.clone(),
                None => return fail(format!("The schema does not define type `{name}`")),
            },
        })
    }

    fn complex(&mut self, json: &Json, depth: usize) -> Result<AvroType> {
        let read = match json["type"].as_str() {
            Some("record") => self.record(json, depth)?,
            Some("array") => AvroType::Array(Arc::new(self.read(&json["items"], depth + 1)?)),
            Some("map") => AvroType::Map(Arc::new(self.read(&json["values"], depth + 1)?)),
            Some("fixed") => {
                let size = json["size"].as_u64().and_then(|size| usize::try_from(size).ok());
                let Some(size) = size else {
                    return fail("A fixed type of the schema has no size");
                };
                AvroType::Fixed(size)
            }
            Some("enum") => {
                let symbols = json["symbols"].as_array().into_iter().flatten();
                let symbols = symbols.filter_map(Json::as_str).map(str::to_owned);
                AvroType::Enum(Arc::new(symbols.collect()))
            }
            _ => return self.read(&json["type"], depth + 1),
        };
        if let Some(name) = json["name"].as_str() {
            self.named.insert(name.to_owned(), read.clone());
            if let Some(namespace) = json["namespace"].as_str() {
                self.named.insert(format!("{namespace}.{name}"), read.clone());
            }
        }
        Ok(read)
    }

    fn record(&mut self, json: &Json, depth: usize) -> Result<AvroType> {
        let Some(written) = json["fields"].as_array() else {
            return fail("A record type of the schema has no fields");
        };
        let mut fields = Vec::with_capacity(written.len());
        for field in written {
            let name = field["name"].as_str().unwrap_or_default().to_owned();
            fields.push((name, self.read(&field["type"], depth + 1)?));
        }
        Ok(AvroType::Record(Arc::new(RecordType { fields })))
    }
}

/// The bytes that are still to be read.
#[derive(Debug)]
struct AvroCursor<'b> {
    bytes: &'b [u8],
    /// Values that may still be read.
    values_left: usize,
}

impl<'b> AvroCursor<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, values_left: bytes.len().saturating_mul(VALUES_PER_BYTE_MAX) }
    }

    fn take(&mut self, size: usize) -> Result<&'b [u8]> {
        let Some((taken, rest)) = self.bytes.split_at_checked(size) else {
            return fail("The file ends within a value");
        };
        debug_assert_eq!(taken.len(), size, "as many bytes as were wanted");
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const SIZE: usize>(&mut self) -> Result<[u8; SIZE]> {
        let mut array = [0; SIZE];
        array.copy_from_slice(self.take(SIZE)?);
        Ok(array)
    }

    /// Reads an integer: seven bits a byte, the least first, the sign in the lowest bit.
    fn integer(&mut self) -> Result<i64> {
        let mut bits = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            bits |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed());
            }
        }
        fail("An integer exceeds 64 bits")
    }

    /// Reads a number of bytes or values, of which each takes a byte at least.
    fn count(&mut self) -> Result<usize> {
        usize::try_from(self.integer()?).or_else(|_| fail("A count, size or index is negative"))
    }

    /// Reads bytes after their number.
    fn sized(&mut self) -> Result<&'b [u8]> {
        let size = self.count()?;
        self.take(size)
    }

    fn text(&mut self) -> Result<String> {
        let bytes = self.sized()?.to_vec();
        String::from_utf8(bytes).or_else(|_| fail("A string is not valid UTF-8"))
    }

    /// Reads the values of an array or a map, which are in blocks up to an empty one.
    fn blocks(&mut self, read: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        loop {
            let mut count = self.integer()?;
            if count < 0 {
                // The block's size in bytes follows a negative number of values.
                self.integer()?;
                count = count.saturating_neg();
            }
            if count == 0 {
                return Ok(());
            }
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if count > self.bytes.len() {
                return fail("An array or map contains fewer values than its header specifies");
            }
            for _ in 0..count {
                read(self)?;
            }
        }
    }

    fn value(&mut self, of: &AvroType) -> Result<AvroValue> {
        let Some(left) = self.values_left.checked_sub(1) else {
            return fail("A block contains more values than its size allows");
        };
        self.values_left = left;
        Ok(match of {
            AvroType::Null => AvroValue::Null,
            AvroType::Bool => AvroValue::Bool(self.take(1)?[0] != 0),
            AvroType::Integer => AvroValue::Int(self.integer()?),
            AvroType::Float => AvroValue::Float(f32::from_le_bytes(self.array()?).into()),
            AvroType::Double => AvroValue::Float(f64::from_le_bytes(self.array()?)),
            AvroType::Bytes => AvroValue::Bytes(self.sized()?.to_vec()),
            AvroType::Text => AvroValue::Text(self.text()?),
            AvroType::Fixed(size) => AvroValue::Bytes(self.take(*size)?.to_vec()),
            AvroType::Enum(names) => match names.get(self.count()?) {
                Some(name) => AvroValue::Text(name.clone()),
                None => return fail("The index of an enum value is out of range"),
            },
            AvroType::Array(item) => {
                let mut values = Vec::new();
                self.blocks(&mut |file| {
                    values.push(file.value(item)?);
                    Ok(())
                })?;
                AvroValue::Array(values)
            }
            AvroType::Map(item) => {
                let mut values = Vec::new();
                self.blocks(&mut |file| {
                    values.push((file.text()?, file.value(item)?));
                    Ok(())
                })?;
                AvroValue::Map(values)
            }
            AvroType::Union(members) => match members.get(self.count()?) {
                Some(member) => self.value(member)?,
                None => return fail("The index of a union value is out of range"),
            },
            AvroType::Record(of) => {
                let values = of.fields.iter().map(|(_, field)| self.value(field));
                let values = values.collect::<Result<Vec<_>>>()?;
                AvroValue::Record(Arc::clone(of), values)
            }
        })
    }
}

//! The two sets of features of M14: M1's, and the 210 of M2.

use std::{collections::BTreeMap, fmt::Write as _};

use lockstep_engine::{Database, Session};
use lockstep_row::{DataType, Datum};
use serde_json::{Value as Json, value::RawValue};

use crate::{
    answer::AnswerValue,
    error::{Error, Result},
    m1::{Data, M1Lockstep, M1Shape, columns},
    m2::{M2Lockstep, M2Shape, m2_datums},
    measure::{ClientLoad, closed_loop},
    statement::PeerType,
    system::System,
};

/// The columns of M2: 210 features.
const M2_SHAPE: M2Shape = M2Shape { columns: 100 };

/// A set of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeatureSet {
    /// Two windows of a thousand rows and two joins.
    M1,
    /// 210 features of a window of ten rows.
    M2,
}

/// What the engine does in this process.
pub(super) struct InProcessRun {
    /// The median time of a request.
    pub(super) p50_us: f64,
    /// The answers to all requests, in their order.
    pub(super) answers: Vec<Vec<AnswerValue>>,
}

impl FeatureSet {
    /// Returns the name, which is that of the deployment as well.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::M1 => "m1",
            Self::M2 => "m2",
        }
    }

    /// Finds a set by its name.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        [Self::M1, Self::M2].into_iter().find(|set| set.name() == name)
    }

    /// Returns what results call it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::M1 => "M1's request: 2 windows of 1,000 rows, 2 joins",
            Self::M2 => "M2's request: 210 features",
        }
    }

    /// Returns how many features an answer has.
    pub(super) fn feature_count(self) -> usize {
        match self {
            Self::M1 => crate::m1::output_count(M1Shape::default()),
            Self::M2 => M2_SHAPE.features(),
        }
    }

    /// Returns how many requests there are.
    pub(super) fn request_count(self) -> usize {
        self.bodies().len()
    }

    /// Makes the tables and the deployment, and inserts the rows.
    pub(super) fn fill(self, session: Session) -> Result<()> {
        match self {
            Self::M1 => M1Lockstep::in_session(session, m1_data(), &[]).map(drop),
            Self::M2 => M2Lockstep::in_session(&session, M2_SHAPE, &[]).map(drop),
        }
    }

    /// Returns the tables of the set.
    pub(super) fn tables(self) -> Vec<String> {
        match self {
            Self::M1 => m1_data().tables().map(crate::m1::TableName::name).collect(),
            Self::M2 => Vec::new(),
        }
    }

    /// Runs all requests in this process.
    pub(super) fn in_process(self, warm_ms: u64, run_ms: u64) -> Result<InProcessRun> {
        let session = Database::in_memory().session();
        match self {
            Self::M1 => {
                let requests = m1_data().requests();
                let lockstep = M1Lockstep::in_session(session, m1_data(), &requests)?;
                run_in_process(&lockstep, requests.len(), (warm_ms, run_ms))
            }
            Self::M2 => {
                let requests = M2_SHAPE.requests();
                let lockstep = M2Lockstep::in_session(&session, M2_SHAPE, &requests)?;
                run_in_process(&lockstep, requests.len(), (warm_ms, run_ms))
            }
        }
    }

    /// Returns the names of the columns of a request row.
    pub(super) fn column_names(self) -> Vec<String> {
        match self {
            Self::M1 => columns().map(|(name, _)| name).collect(),
            Self::M2 => {
                let own = ["k".to_owned(), "ts".to_owned()];
                let values = (0..M2_SHAPE.columns).map(|column| format!("c{column}"));
                own.into_iter().chain(values).collect()
            }
        }
    }

    /// Returns the types of these columns.
    pub(super) fn column_types(self) -> Vec<DataType> {
        let of_peer = |kind| match kind {
            PeerType::Text(_) => DataType::String,
            PeerType::Int => DataType::BigInt,
            PeerType::Double => DataType::Double,
            PeerType::Time => DataType::Timestamp,
        };
        match self {
            Self::M1 => columns().map(|(_, kind)| of_peer(kind)).collect(),
            Self::M2 => {
                let values = [DataType::BigInt, DataType::Double].into_iter().cycle();
                let own = [DataType::String, DataType::Timestamp];
                own.into_iter().chain(values.take(M2_SHAPE.columns)).collect()
            }
        }
    }

    /// Writes every request row.
    pub(super) fn write_rows<T>(self, write: impl Fn(&[Datum<'_>]) -> T) -> Vec<T> {
        match self {
            Self::M1 => m1_data().requests().iter().map(|row| write(&row.datums())).collect(),
            Self::M2 => M2_SHAPE.requests().iter().map(|row| write(&m2_datums(row))).collect(),
        }
    }

    /// Returns the request rows as JSON.
    pub(super) fn bodies(self) -> Vec<String> {
        let names = self.column_names();
        self.write_rows(|row| object(&names, row))
    }
}

fn m1_data() -> Data {
    Data { shape: M1Shape::default() }
}

fn run_in_process(
    system: &dyn System,
    requests: usize,
    (warm_ms, run_ms): (u64, u64),
) -> Result<InProcessRun> {
    let mut client = system.connect()?;
    let answers = (0..requests).map(|request| client.answer(request)).collect::<Result<_>>()?;
    let measured = closed_loop(system, ClientLoad { threads: 1, warm_ms, run_ms, requests })?;
    let p50_us = measured.latency_ns.value_at_quantile(0.5) as f64 / 1_000.0;
    Ok(InProcessRun { p50_us, answers })
}

/// Writes a row as a JSON object.
fn object(names: &[String], row: &[Datum<'_>]) -> String {
    debug_assert_eq!(names.len(), row.len(), "a value has a name");
    let mut text = String::from("{");
    for (name, value) in names.iter().zip(row) {
        let comma = if text.len() > 1 { "," } else { "" };
        let written = match *value {
            Datum::String(value) => write!(text, "{comma}\"{name}\":\"{value}\""),
            Datum::Double(value) => write!(text, "{comma}\"{name}\":{value:?}"),
            Datum::Timestamp(ms) => write!(text, "{comma}\"{name}\":{ms}"),
            _ => match value.as_i64() {
                Some(value) => write!(text, "{comma}\"{name}\":{value}"),
                None => write!(text, "{comma}\"{name}\":null"),
            },
        };
        written.expect("a string takes everything");
    }
    text.push('}');
    text
}

/// Reads the body of an answer: an object whose values are of the kinds of the expected ones.
pub(super) fn read_answer(body: &[u8], expected: &[AnswerValue]) -> Result<Vec<AnswerValue>> {
    let wrong =
        |what: &str| Error::peer("lockstep", format!("{what}: {}", String::from_utf8_lossy(body)));
    let json: Json = serde_json::from_slice(body).map_err(|_error| wrong("invalid JSON"))?;
    let object = json.as_object().ok_or_else(|| wrong("not a JSON object"))?;
    // The texts of the values: serde_json's own floats may be off by one unit in the last place.
    let texts: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(body).map_err(|_error| wrong("not a JSON object"))?;
    if object.len() != expected.len() {
        return Err(wrong("unexpected columns"));
    }
    let value = |((name, found), expected): ((&String, &Json), &AnswerValue)| {
        let read = match expected {
            AnswerValue::Null => found.is_null().then_some(AnswerValue::Null),
            AnswerValue::Int(_) => {
                found.as_i64().or(found.as_bool().map(i64::from)).map(AnswerValue::Int)
            }
            AnswerValue::Double(_) => texts[name].get().parse().ok().map(AnswerValue::Double),
            AnswerValue::Text(_) => found.as_str().map(|text| AnswerValue::Text(text.into())),
            AnswerValue::Time(_) => found.as_i64().map(AnswerValue::Time),
        };
        read.unwrap_or_else(|| AnswerValue::Text(found.to_string().into()))
    };
    Ok(object.iter().zip(expected).map(value).collect())
}

//! The inputs of fuzzing: SQL, a name, or a file with the statement that reads it.

use std::fmt;

use lockstep_engine::Parameter;

use super::{
    corpus::Corpus,
    grammar::{self, DrawnStatement},
    mutate,
};
use crate::random::Random;

/// The input of one execution.
#[derive(Debug, Clone, PartialEq)]
pub enum FuzzInput {
    /// Statements, and the [`super::constructs`] that they were drawn from.
    Sql {
        /// The text.
        text: String,
        /// The constructs; empty for a text of the corpus.
        constructs: Vec<&'static str>,
        /// Values for its `?`, when it was drawn with them.
        parameters: Vec<Parameter>,
    },
    /// The name of a table, a column or a deployment.
    Name(String),
    /// A file and a statement, in which `{file}` and `{folder}` stand for paths.
    File {
        /// The content of the file.
        content: String,
        /// The statement that reads or writes it.
        statement: String,
    },
}

impl fmt::Display for FuzzInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sql { text, parameters, .. } if parameters.is_empty() => f.write_str(text),
            Self::Sql { text, parameters, .. } => write!(f, "{text}\nvalues: {parameters:?}"),
            Self::Name(name) => write!(f, "name: {name}"),
            Self::File { content, statement } => write!(f, "{statement}\nfile:\n{content}"),
        }
    }
}

impl From<String> for FuzzInput {
    fn from(text: String) -> Self {
        Self::Sql { text, constructs: Vec::new(), parameters: Vec::new() }
    }
}

impl FuzzInput {
    /// Returns the constructs that it was drawn from.
    pub fn constructs(&self) -> &[&'static str] {
        match self {
            Self::Sql { constructs, .. } => constructs,
            Self::Name(_) | Self::File { .. } => &[],
        }
    }
}

/// Draws the next input.
pub fn draw(corpus: &Corpus, random: &mut Random) -> FuzzInput {
    match random.below(20) {
        0 => FuzzInput::Name(grammar::name(random)),
        1 => file(random),
        2..=10 => {
            let DrawnStatement { text, constructs, parameters } = grammar::statement(random);
            FuzzInput::Sql { text, constructs, parameters }
        }
        _ => FuzzInput::from(mutate::input(corpus, random)),
    }
}

fn file(random: &mut Random) -> FuzzInput {
    let columns = ["id", "k", "ts", "c3", "c6", "c8", "ID", "k ", "nowhere", "", "\"id\"", "漢字"];
    let cells = [
        "1",
        "",
        "NULL",
        "a",
        "\"x\"",
        "\"",
        "2024-01-01",
        "1e400",
        "-0",
        "\u{0}",
        "\r",
        "9223372036854775808",
    ];
    let delimiter = *random.pick(&[",", ";", "\t", "||", "é", ""]);
    let mut line = |from: &[&str]| {
        let count = random.below(8);
        (0..count).map(|_| *random.pick(from)).collect::<Vec<_>>().join(delimiter)
    };
    let mut lines = vec![line(&columns)];
    for _ in 0..4 {
        lines.push(line(&cells));
    }
    let option = match random.below(14) {
        0 => "header=false",
        1 => "delimiter=';'",
        2 => "delimiter=''",
        3 => "quote='\"'",
        4 => "quote=''",
        5 => "null_value='NULL'",
        6 => "on_error='skip'",
        7 => "thread=9223372036854775807",
        8 => "format='parquet'",
        9 => "deep_copy=false",
        10 => "sql='SELECT * FROM file'",
        11 => "mode='overwrite'",
        12 => "nothing='x'",
        _ => "format='csv'",
    };
    let statement = match random.below(6) {
        0 => format!("SELECT * FROM t1 INTO OUTFILE '{{folder}}/out' OPTIONS({option})"),
        1 => format!("SELECT * FROM t1 INTO OUTFILE '{{folder}}/out/' OPTIONS({option})"),
        2 => "CREATE TABLE liked LIKE PARQUET '{file}'".to_owned(),
        3 => format!(
            "SET @@execute_mode='offline'; LOAD DATA INFILE '{{file}}' INTO TABLE t1 \
             OPTIONS({option}); SELECT * FROM t1"
        ),
        _ => format!("LOAD DATA INFILE '{{file}}' INTO TABLE t1 OPTIONS({option})"),
    };
    FuzzInput::File { content: lines.join("\n"), statement }
}

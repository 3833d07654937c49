//! HTTP/1.1 over a socket, as far as the soak calls it.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::{Value as Json, json, value::RawValue};

use super::{
    connection::CallFailure,
    row::{Cell, CellRows, CellType, SoakRow},
};

/// A server that answers nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection.
#[derive(Debug)]
pub struct SoakHttp {
    stream: BufReader<TcpStream>,
}

impl SoakHttp {
    /// Connects.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a call without reading its answer.
    pub fn send(&mut self, path: &str, body: &str) -> io::Result<()> {
        let length = body.len();
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: soak\r\nContent-Length: {length}\r\n\r\n");
        self.stream.get_mut().write_all(format!("{head}{body}").as_bytes())
    }

    /// Calls and returns the body of the answer.
    pub fn call(&mut self, path: &str, body: &Json) -> Result<Vec<u8>, CallFailure> {
        self.send(path, &body.to_string())?;
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(CallFailure::Ended);
        }
        let status: u16 = line.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut length = 0;
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(CallFailure::Ended);
            }
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        if status == 200 {
            return Ok(body);
        }
        let answer: Json = serde_json::from_slice(&body).unwrap_or_default();
        let text = |name: &str| answer["error"][name].as_str().unwrap_or_default().to_owned();
        Err(CallFailure::Refused { code: text("code"), message: text("message") })
    }
}

/// Returns a row as the values of a JSON array.
pub fn json_of(row: &SoakRow) -> Json {
    json!([row.key, row.id, row.x, row.d, row.batch, row.ts])
}

/// The answer of statements, as far as the soak reads it.
#[derive(Debug, serde::Deserialize)]
struct SqlAnswer<'b> {
    #[serde(borrow)]
    rows: Vec<Vec<&'b RawValue>>,
}

/// Reads the rows of an answer of a deployment.
pub fn cells_in_array(body: &[u8], types: &[CellType]) -> Result<CellRows, CallFailure> {
    let rows: Option<Vec<Vec<&RawValue>>> = serde_json::from_slice(body).ok();
    cells_in(rows, types).ok_or_else(|| wrong(body))
}

/// Reads the rows of an answer of statements.
pub fn cells_in_answer(body: &[u8], types: &[CellType]) -> Result<CellRows, CallFailure> {
    let answer: Option<SqlAnswer<'_>> = serde_json::from_slice(body).ok();
    cells_in(answer.map(|answer| answer.rows), types).ok_or_else(|| wrong(body))
}

fn wrong(body: &[u8]) -> CallFailure {
    CallFailure::Wrong(format!("not the rows of an answer: {}", body.escape_ascii()))
}

/// Reads values from their text: the parser of JSON does not return the nearest DOUBLE.
fn cells_in(rows: Option<Vec<Vec<&RawValue>>>, types: &[CellType]) -> Option<CellRows> {
    let cell = |(value, cell_type): (&&RawValue, &CellType)| match (value.get(), cell_type) {
        ("null", _) => Some(Cell::Null),
        (text, CellType::Text) => serde_json::from_str(text).ok().map(Cell::Text),
        (text, cell_type) => cell_type.read(text),
    };
    let row = |row: &Vec<&RawValue>| {
        let is_whole = row.len() == types.len();
        is_whole.then(|| row.iter().zip(types).map(cell).collect::<Option<Vec<Cell>>>())?
    };
    rows?.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::{Cell, CellType, cells_in_answer, cells_in_array};

    #[test]
    fn values_are_read_to_the_bit() {
        let types = [CellType::Text, CellType::Double];
        let number = 0.1 + 0.2;
        let expected = vec![vec![Cell::Text("a\n".to_owned()), Cell::Double(f64::to_bits(number))]];
        let row = r#"["a\n",0.30000000000000004]"#;
        assert_eq!(cells_in_array(format!("[{row}]").as_bytes(), &types).unwrap(), expected);
        let answer = format!(r#"{{"columns":[],"rows":[{row}]}}"#);
        assert_eq!(cells_in_answer(answer.as_bytes(), &types).unwrap(), expected);
        assert!(cells_in_array(b"[[1]]", &types).is_err());
    }
}

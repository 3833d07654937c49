//! Tests of rows from JSON: conversions, missing and unknown keys, and the messages of errors.

use lockstep_row::{Arena, DataType, Datum};

use crate::Database;

use super::{BodyForm, JsonRowForm, KeyRule, RowSchema};

fn schema(keys: KeyRule) -> RowSchema {
    let types = [
        ("s", DataType::String),
        ("i", DataType::Int),
        ("b", DataType::BigInt),
        ("f", DataType::Float),
        ("d", DataType::Double),
        ("t", DataType::Timestamp),
        ("day", DataType::Date),
        ("is", DataType::Bool),
    ];
    let columns: Vec<_> = types.into_iter().map(|(name, t)| (name.to_owned(), t)).collect();
    let conversion = Database::in_memory().session().conversion();
    RowSchema::new(&columns, conversion, keys)
}

fn read(text: &str) -> Result<String, String> {
    let arena = Arena::new();
    let row = schema(KeyRule::AllReadAndMore(vec![true; 8]));
    let row = row.read_row(text.as_bytes(), &arena);
    row.map(|row| format!("{:?}", row.values)).map_err(|error| error.message)
}

#[test]
fn a_row_is_an_object_or_an_array() {
    let expected = [
        Datum::String("a\u{e9}"),
        Datum::Int(-1),
        Datum::BigInt(i64::MAX),
        Datum::Float(1.5),
        Datum::Double(0.1),
        Datum::Timestamp(90_000),
        Datum::Date(18_383),
        Datum::Bool(true),
    ];
    let expected = Ok(format!("{expected:?}"));
    let array = r#"["a\u00e9",-1,9223372036854775807,1.5,0.1,90000,"2020-05-01",true]"#;
    assert_eq!(read(array), expected);
    let object = r#" {"is":true,"more":[{}],"s":"aé","i":-1.0,"b":9223372036854775807,"f":1.5,
        "d":1e-1,"t":"1970-01-01T00:01:30Z","day":"2020-05-01"} "#;
    assert_eq!(read(object), expected);
}

#[test]
fn numbers_are_read_with_all_digits() {
    let row = r#"[null,null,null,null,0.30000000000000004,null,null,null]"#;
    assert!(read(row).unwrap().contains("Double(0.30000000000000004)"));
    // The nearest double, which a parser that multiplies by powers of ten misses.
    for digits in ["2.2250738585072011e-308", "1.7976931348623157e308", "6.02214076e23", "1e23"] {
        let expected = format!("Double({:?})", digits.parse::<f64>().unwrap());
        let row = format!("[null,null,null,null,{digits},null,null,null]");
        assert!(read(&row).unwrap().contains(&expected), "{digits}");
    }
    for (digits, whole) in [
        ("7787837581354064.00", 7_787_837_581_354_064_i64),
        ("9007199254740991.0", 9_007_199_254_740_991),
        ("2902355040049824.0000", 2_902_355_040_049_824),
        ("1e18", 1_000_000_000_000_000_000),
        ("-9223372036854775808.0", i64::MIN),
    ] {
        let row = format!("[null,null,{digits},null,null,{digits},null,null]");
        let found = read(&row).unwrap();
        assert!(found.contains(&format!("BigInt({whole})")), "{digits}: {found}");
        assert!(found.contains(&format!("Timestamp({whole})")), "{digits}: {found}");
    }
    let row = r#"[null,null,null,"NaN","-Infinity",null,null,null]"#;
    assert!(read(row).unwrap().contains("Float(NaN), Double(-inf)"));
}

#[test]
fn what_is_no_value_of_its_column_is_refused() {
    for (text, message) in [
        (r#"{"s":1}"#, "column `s` is of type STRING but the value is the number 1"),
        (r#"{"i":"1"}"#, "column `i` is of type INT but the value is a string"),
        (r#"{"i":1.5}"#, "column `i` is of type INT but the value is the number 1.5"),
        (
            r#"{"b":4503599627370496.4}"#,
            "column `b` is of type BIGINT but the value is the number 4503599627370496.4",
        ),
        (r#"{"b":1e19}"#, "column `b`: value 1e19 is out of range for type BIGINT"),
        (r#"{"t":-9223372036854775809.0}"#, "value -9223372036854775809 is out of range for"),
        (r#"{"i":1e10}"#, "column `i`: value 10000000000 is out of range for type INT"),
        (r#"{"f":16777217.0}"#, "column `f`: value 16777217 cannot be represented in type FLOAT"),
        (r#"{"i":3000000000}"#, "column `i`: value 3000000000 is out of range for type INT"),
        (r#"{"b":18446744073709551615}"#, "value 18446744073709551615 is out of range for"),
        (r#"{"d":9007199254740993}"#, "value 9007199254740993 cannot be represented in"),
        (r#"{"f":1e300}"#, "cannot be represented in type FLOAT"),
        (r#"{"day":"2020-13-01"}"#, "column `day`: invalid input syntax for type DATE"),
        (r#"{"s":[]}"#, "the value is an array"),
        (r#"{"s":"a","s":"b"}"#, "column `s` specified more than once"),
        (
            r#"{"s":"a","b":1,"f":1,"d":1,"t":1,"day":null,"is":true}"#,
            "missing value for column `i` of type INT",
        ),
        (
            r#"{"s":"a","b":1,"f":1,"t":1,"is":true}"#,
            "missing values for columns `i` (INT), `d` (DOUBLE), `day` (DATE)",
        ),
        (r#"["a"]"#, "the row has 1 values but 8 columns are expected"),
        ("[1", "column `s`"),
        ("{", "invalid request body: EOF"),
        ("1", "expected a row"),
        ("", "EOF"),
    ] {
        let found = read(text).unwrap_err();
        assert!(found.contains(message), "{text}: {found}");
    }
}

#[test]
fn rows_of_a_table_may_lack_columns_but_have_no_others() {
    let table = schema(KeyRule::Some);
    let mut present = Vec::new();
    let rows = b"[{\"i\":1},\n {\"s\":\"a\",\"i\":2}]";
    let read = table.read_array(rows, |row| {
        present.push(row.present[..2].to_vec());
        Ok(())
    });
    assert_eq!((read, present), (Ok(()), vec![vec![false, true], vec![true, true]]));
    let error = table.read_lines(b"{\"i\":1}\n\n{\"ii\":2}\n", |_| Ok(()));
    let diagnostic = error.unwrap_err();
    assert_eq!(diagnostic.message, "column `ii` does not exist");
    assert_eq!(diagnostic.detail.as_deref(), Some("The row is in line 3 of the body."));
}

#[test]
fn a_request_row_needs_the_columns_that_are_read() {
    let reads = vec![true, false, false, false, true, false, false, false];
    let schema = schema(KeyRule::AllReadAndMore(reads));
    let arena = Arena::new();
    let read = |text: &'static [u8]| schema.read_row(text, &arena).map(|row| row.values[4]);
    assert_eq!(read(br#"{"s":"a","d":1.5}"#), Ok(Datum::Double(1.5)));
    // A value that is given is of its column's type, whether it is read or not.
    let error = read(br#"{"s":"a","d":1.5,"i":"x"}"#).unwrap_err();
    assert_eq!(error.message, "column `i` is of type INT but the value is a string");
    let error = read(br#"{"S":"a","more":1}"#).unwrap_err();
    assert_eq!(error.message, "missing values for columns `s` (STRING), `d` (DOUBLE)");
    let hint = error.hint.unwrap();
    assert!(hint.starts_with("Did you mean `s` instead of `S`?"), "{hint}");
}

#[test]
fn a_body_has_one_row_or_many() {
    for (body, rows, is_array) in [
        ("{}", JsonRowForm::Objects, false),
        (" [ {", JsonRowForm::Objects, true),
        ("[[1]]", JsonRowForm::Arrays, true),
        ("[]", JsonRowForm::Arrays, true),
        ("[1,", JsonRowForm::Arrays, false),
        ("", JsonRowForm::Objects, false),
    ] {
        assert_eq!(BodyForm::of(body.as_bytes()), BodyForm { rows, is_array }, "{body}");
    }
}

//! Claims about scalar functions, among them every example of every declaration.

use std::path::Path;

use chrono_tz::Tz;
use lockstep_row::{Arena, DataType, Value};

use super::{CallArguments, all, find, names, operator, operators};
use crate::{
    Compatibility, Settings, TimeZone,
    cast::{cast_form, print_datum},
    testing::evaluate,
};

const REFERENCE: Settings = Settings {
    time_zone: TimeZone::Named(Tz::Etc__GMTMinus8),
    compatibility: Compatibility::OpenMldb,
};

fn check_in(settings: Settings, sql: &str, expected: &str) {
    let (_, value) = evaluate(sql, settings).unwrap_or_else(|error| panic!("{sql}: {error}"));
    assert_eq!(print_datum(value.as_datum(&Arena::new()), &settings), expected, "{sql}");
}

fn check(sql: &str, expected: &str) {
    check_in(Settings::default(), sql, expected);
}

fn check_reference(sql: &str, expected: &str) {
    check_in(REFERENCE, sql, expected);
}

fn check_refused(sql: &str) {
    assert!(evaluate(sql, Settings::default()).is_err(), "`{sql}` binds");
}

#[test]
fn every_example_gives_what_it_says() {
    for function in all().chain(operators()) {
        assert!(!function.examples.is_empty(), "`{}` has an example", function.name);
        for (sql, expected) in function.examples {
            check(sql, expected);
        }
    }
}

/// Results to the bit, which no machine and no new version of a library may change.
#[test]
fn results_have_the_same_bits_everywhere() {
    for line in include_str!("bits.txt").lines() {
        let (sql, expected) = line.split_once(" = ").unwrap();
        let (_, value) = evaluate(sql, Settings::default()).unwrap();
        // Answers leave the engine with one NaN.
        let bits = match value.as_datum(&Arena::new()).with_one_nan().to_value() {
            Value::Float(value) => format!("{:08x}", value.to_bits()),
            Value::Double(value) => format!("{:016x}", value.to_bits()),
            other => panic!("{sql} is {other:?}"),
        };
        assert_eq!(bits, expected, "{sql}");
    }
}

#[test]
fn declarations_read_well() {
    for function in all().chain(operators()) {
        assert!(function.doc.ends_with('.'), "`{}`: full sentences", function.name);
        assert!(!function.signature.is_empty() && !function.category.is_empty());
        assert_eq!(function.name, function.name.to_ascii_lowercase());
    }
    assert_eq!(find("SubStr").map(|function| function.name), Some("substring"));
    assert!(names().all(|name| !name.starts_with("op_")));
    assert!(operator("to_bool").is_some() && operator("substr").is_none());
}

#[test]
fn every_listed_scalar_is_declared() {
    let Some(list) = shared("functions.csv") else { return };
    let absent = ["make_tuple"];
    for line in list.lines().skip(1) {
        let mut fields = line.split(',');
        let (Some(name), Some(kind)) = (fields.next(), fields.next()) else { continue };
        if kind == "scalar" && !absent.contains(&name) {
            assert!(find(name).is_some(), "`{name}` is declared");
        }
    }
}

/// Returns a reference file beside the repository, where there is one.
fn shared(name: &str) -> Option<String> {
    let path = Path::new("../../../shared").join(name);
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        eprintln!("skipped: there is no {}", path.display());
    }
    text
}

#[test]
fn operators_have_the_types_of_the_reference() {
    let Some(rules) = shared("type_rules.csv") else { return };
    // A FLOAT does not hold these, so that by default the result is DOUBLE.
    let is_wide = |side: &DataType| matches!(side, DataType::Int | DataType::BigInt);
    let comparisons = ["op_eq", "op_ne", "op_lt", "op_le", "op_gt", "op_ge"];
    let is_comparison = |name: &str| comparisons.contains(&name);
    let timestamps = [DataType::Timestamp, DataType::Timestamp];
    let mut count = 0;
    for line in rules.lines().skip(1) {
        let [sign, left, right, result] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("four fields: {line}");
        };
        let type_of = |name: &str| DataType::from_name(name).unwrap_or_else(|| panic!("{name}"));
        let types = [type_of(left), type_of(right)];
        let name = match sign {
            "+" => "op_add",
            "-" => "op_subtract",
            "*" => "op_multiply",
            "/" => "op_divide",
            "%" | "MOD" => "op_modulo",
            "DIV" => "op_int_divide",
            "&" => "op_bit_and",
            "|" => "op_bit_or",
            "^" => "op_bit_xor",
            "=" | "==" => "op_eq",
            "!=" | "<>" => "op_ne",
            "<" => "op_lt",
            "<=" => "op_le",
            ">" => "op_gt",
            ">=" => "op_ge",
            // Both sides go through `to_bool`, as those of XOR do.
            "AND" | "OR" | "XOR" => "op_xor",
            other => panic!("an operator that is not known: {other}"),
        };
        // By default a text that is no constant compares with texts only (ADR 0018).
        let is_mixed = types.contains(&DataType::String)
            && types.iter().any(|side| !matches!(side, DataType::String | DataType::Null));
        for settings in [Settings::default(), REFERENCE] {
            let arguments =
                CallArguments { types: &types, constants: &[None, None], settings: &settings };
            let bound = (find(name).expect("an operator").resolve)(&arguments);
            let found = bound.as_ref().map(|bound| bound.returns.clone()).ok();
            let result = match (result, settings.compatibility) {
                ("float", Compatibility::Standard) if types.iter().any(is_wide) => "double",
                (_, Compatibility::Standard) if sign == "-" && types == timestamps => "bigint",
                (_, Compatibility::Standard) if is_mixed && is_comparison(name) => "ERROR",
                (result, _) => result,
            };
            assert_eq!(found, (result != "ERROR").then(|| type_of(result)), "{line}");
            if let Ok(bound) = bound {
                for (from, to) in types.iter().zip(&bound.parameters) {
                    assert!(cast_form(from, to, &settings).is_some(), "{line}: {from} to {to}");
                }
            }
        }
        count += 1;
    }
    assert_eq!(count, 1446, "every row was checked");
}

#[test]
fn what_an_integer_type_does_not_hold_is_null_and_wraps_in_the_reference() {
    let check_both = |sql: &str, reference: &str| {
        check(sql, "NULL");
        check_reference(sql, reference);
    };
    check_both("smallint(32767) + smallint(1)", "-32768");
    check_both("2147483647 + 1", "-2147483648");
    check_both("op_negate(smallint(-32768))", "-32768");
    check_both("bigint(9223372036854775807) + 1", "-9223372036854775808");
    check_both("bigint(9223372036854775807) * 2", "-2");
    check_both("op_int_divide(int(-2147483648), -1)", "-2147483648");
    check_both("int16(300) * int16(300)", "24464");
    check_both("abs(int(-2147483648))", "-2147483648");
    check_both("inc(2147483647)", "-2147483648");
    check_both("int('x') + 1", "NULL");
    check_both("round(smallint(32767), -1)", "-32766");
    check("false + true", "true");
    check("true DIV false", "NULL");
    check("int('0x80000000')", "NULL");
    check("16777217 + float(0)", "16777217");
    check_reference("16777217 + float(0)", "1.67772e+07");
}

#[test]
fn floats_have_one_order() {
    for (sql, expected, in_openmldb) in [
        ("double('nan') = double('nan')", "true", "false"),
        ("double('nan') = float('nan')", "true", "false"),
        ("double('nan') != double('nan')", "false", "true"),
        ("double('nan') < 1", "false", "false"),
        ("double('nan') > double('inf')", "true", "false"),
        ("double('nan') >= double('nan')", "true", "false"),
        ("1 <= double('nan')", "true", "false"),
        ("0.0 = double('-0.0')", "true", "true"),
        ("0.0 > double('-0.0')", "false", "false"),
        ("op_between(double('nan'), 1, double('nan'))", "true", "false"),
        ("op_not_between(double('nan'), 1, 2)", "true", "false"),
        ("op_in(double('nan'), 1, double('nan'))", "true", "false"),
        ("op_case(double('nan'), double('nan'), 'same')", "same", "NULL"),
        ("nullif(double('nan'), double('nan'))", "NULL", "nan"),
        ("greatest(double('nan'), double('inf'))", "NaN", "nan"),
        ("array_contains(array(double('nan')), double('nan'))", "true", "true"),
    ] {
        check(sql, expected);
        check_reference(sql, in_openmldb);
    }
    check("bigint(16777217) = float(16777216)", "false");
    check_reference("bigint(16777217) = float(16777216)", "true");
}

#[test]
fn texts_compare_with_texts_unless_the_reference_is_followed() {
    check_refused("string(2) < 10");
    check_reference("string(2) < 10", "false");
    check_reference("timestamp(0) < 'yesterday'", "true");
    check_refused("nullif(string(1), 1)");
    check_reference("nullif(string(1), 1)", "NULL");
}

#[test]
fn types_that_do_not_go_together_are_refused() {
    for sql in [
        "date('2020-01-01') = 1",
        "timestamp(1) < date('2020-01-01')",
        "timestamp(1) + 1.5",
        "1 - timestamp(1)",
        "'1' + 1",
        "1.5 DIV 2",
        "abs('1')",
        "sqrt(true)",
        "hour(date('2020-01-01'))",
        "year(1)",
        "substring(1, 1)",
        "date_format('x', 'y')",
        "date(1)",
        "date(true)",
        "like_match(1, '1%')",
        "op_like('a', 'b', '<>')",
        "array_combine('-')",
        "array_contains([1], 'a')",
        "map(1)",
        "concat([1])",
        "op_bit_not(1.5)",
        "date_trunc('fortnight', timestamp(1))",
    ] {
        check_refused(sql);
    }
}

#[test]
fn results_have_the_types_of_the_reference() {
    let check = |sql: &str, expected: DataType| {
        assert_eq!(evaluate(sql, Settings::default()).map(|typed| typed.0), Ok(expected), "{sql}");
    };
    check("abs(smallint(1))", DataType::Int);
    check("abs(float(1))", DataType::Double);
    check("floor(2)", DataType::BigInt);
    check("floor(true)", DataType::Double);
    check("round(float(0.5))", DataType::Float);
    check("asin(float(0.2))", DataType::Float);
    check("bigint(7) DIV NULL", DataType::BigInt);
    check("nvl2(NULL, bigint(1), float(4))", DataType::Double);
    check("if_null(bigint(1), 'abc')", DataType::String);
    check("map(bigint(10), smallint(11))[12]", DataType::SmallInt);
    check("cot(float(1))", DataType::Float);
    check("NULL + timestamp(1)", DataType::Timestamp);
    let by_text = evaluate("minimum('1', 2)", REFERENCE).map(|typed| typed.0);
    assert_eq!(by_text, Ok(DataType::String));
    check_refused("minimum(string(1), 2)");
}

#[test]
fn hashes_are_those_of_the_reference() {
    check("hash64(int(0))", "-470600885322160961");
    check("hash64(bigint(1))", "5925585971146611297");
    check("hash64(smallint(55))", "-8280049305495806603");
    check("hash64(2.0)", "1446482599179445476");
    check("hash64(float(1.0))", "322450456541637418");
    check("hash64(timestamp(1590115420000))", "4361965398422314040");
    check("hash64(date('2020-07-15'))", "-8740639806462273876");
    check("hash64(true)", "5161771770385946686");
    check("hash64(false)", "-4728684028706075820");
    check("hash64(smallint(90))", "-9205917472348398353");
    check("hash64(90.0)", "42123122574000053");
}

#[test]
fn like_matches_whole_texts() {
    check("like_match('Mike', 'M_\\ke', '\\')", "true");
    check("like_match('Mike', 'M_\\ke', '')", "false");
    check("like_match('Mike', 'M%', NULL)", "NULL");
    check("like_match('a', 'a\\')", "false");
    check("like_match('ab', 'a', '<>')", "false");
    check("'abcbc' LIKE 'a%bc'", "true");
    check("'' LIKE '%'", "true");
    check("'' LIKE '_'", "false");
    check("'a%c' LIKE 'a\\%c'", "true");
    check("'abc' LIKE 'a\\%c'", "false");
    check("'aXbXc' LIKE '%X%X%'", "true");
    check("'hello' LIKE '%ell%'", "true");
    check("'Ä' ILIKE 'ä'", "true");
    check_reference("'Ä' ILIKE 'ä'", "false");
    check("'据' LIKE '_'", "true");
    check_reference("'据' LIKE '_'", "false");
    check_reference("'据' LIKE '___'", "true");
    check("'a%_b' LIKE '_a%b'", "false");
}

#[test]
fn lists_follow_the_reference() {
    check("`join`(split('???,,k4:v4', ','), ' ')", "???  k4:v4");
    check("`join`(split_by_key('???,,k4:v4', ',', ':'), ' ')", "k4");
    check("split('a', '')", "[]");
    check("split_by_value('k:v:w', ',', ':')", "[v]");
    check("list_except_by_key(split('a:1,b:2,c:0', ','), '')", "[a:1, b:2, c:0]");
    check("array_combine(NULL, [1], ['9', '8'])", "[19, 18]");
    check(
        "array_join(array_combine('-', [1, 2], [bigint(3)], ['5', '6']), ',')",
        "1-3-5,1-3-6,2-3-5,2-3-6",
    );
    check_reference(
        "array_combine('|', ['1'], [timestamp(1717171200000)])",
        "[1|2024-06-01 00:00:00]",
    );
    check("split_array('', ',')", "[NULL]");
}

#[test]
fn times_follow_the_session_time_zone() {
    check("hour(bigint(30))", "0");
    check_reference("hour(bigint(30))", "8");
    check_reference("dayofweek(bigint(0))", "5");
    check_reference("string(timestamp(1590115420000))", "2020-05-22 10:43:40");
    check_reference("bigint(timestamp(date('2020-05-22')))", "1590076800000");
    check_reference(
        "date_format(date('2020-05-01'), '%Y-%m-%d %H:%M:%S %z')",
        "2020-05-01 00:00:00 +0800",
    );
    check_reference("unix_timestamp('2020-05-22 10:43:40')", "1590115420");
    check(
        "date_format(timestamp(0), '%j %U %W %V %G %y %e %I %p %s %% %q')",
        "001 00 00 01 1970 70  1 12 AM 0 % %q",
    );
    check("year(timestamp('1969-12-31 23:59:59') - 1)", "1969");
    let new_york =
        Settings { time_zone: TimeZone::Named(Tz::America__New_York), ..Settings::default() };
    check_in(new_york, "string(timestamp(1590115420000))", "2020-05-21 22:43:40");
    check_in(new_york, "date_trunc('day', timestamp(1590115420000))", "2020-05-21 00:00:00");
}

#[test]
fn text_positions_count_characters_unless_the_reference_is_followed() {
    check_reference("char_length('数据库')", "9");
    check("char_length(NULL)", "NULL");
    check_reference("substring('数据库', 4, 3)", "据");
    check_reference("locate('据', '数据库')", "4");
    check("locate('据', '数据库')", "2");
    check("locate('', 'ab', 3)", "3");
    check("locate('', 'ab', 4)", "0");
    check("locate('b', 'ab', 0)", "0");
    check("substring('hello', 30, 2)", "");
    check("substring('hello', -9)", "");
    check("substring('hello', 2, 0)", "");
    check_reference("hex('aé')", "61FFFFFFC3FFFFFFA9");
    check("hex('aé')", "61C3A9");
    check_reference("reverse('ab')", "ba");
    check_reference("ucase('é')", "é");
    check("ucase('é')", "É");
}

#[test]
fn numbers_round_away_from_zero() {
    check("round(bigint(9223372036854775807), -1)", "NULL");
    check("round(-1250, -2)", "-1300");
    check("round(15, -30)", "0");
    check("round(1e300, 20)", "1e+300");
    check("pmod(-7, -3)", "-1");
    check("pmod(-7.5, 2)", "0.5");
    check("greatest(1, double('nan'))", "NaN");
    check("least(NULL, NULL)", "NULL");
}

#[test]
fn null_literals_adapt() {
    check("abs(NULL)", "NULL");
    check("concat('a', NULL)", "NULL");
    check("NULL = NULL", "NULL");
    check("op_bit_not(NULL)", "NULL");
    check("isin(NULL, [1, NULL])", "true");
    check("size(NULL)", "NULL");
    check("map()['a']", "NULL");
    check("unix_timestamp(NULL)", "NULL");
}

#[test]
fn formats_write_features_as_the_reference_does() {
    check_reference(
        "csv(binary_label(true), binary_label(false), continuous(0), continuous(0.0), discrete(3), \
         discrete(date('2020-05-22'), 1), multiclass_label(-10), regression_label(-1))",
        "1,0,0,0.000000,2681491882390849628,0,-10,-1",
    );
    check_reference("csv(continuous(1e30))", "1000000000000000019884624838656.000000");
    check_reference("csv(continuous(sqrt(-1)), continuous(double('inf')))", "nan,inf");
    check_reference("csv()", "");
    check_reference("libsvm()", "");
    check_reference("gcformat()", " | ");
    check_reference(
        "gcformat(regression_label(2), continuous(1), continuous(int('x')), continuous(0.0), \
         regression_label(int('x')))",
        " | 1:5925585971146611297:1 3:7262150054277104024:0.000000",
    );
    check_reference(
        "libsvm(multiclass_label(1), discrete(3, 100), discrete(NULL, 1000), \
         discrete('b', NULL), continuous(7))",
        "1 29:1 1101:7",
    );
    check_reference("libsvm(discrete(3, -1), discrete(3, 0), discrete(3, 1000))", "629:1");
}

#[test]
fn a_line_has_one_label_and_takes_features_only() {
    check("csv(binary_label(true), binary_label(false))", "1,0");
    for sql in [
        "gcformat(binary_label(true), regression_label(1))",
        "libsvm(binary_label(true), regression_label(1))",
        "gcformat(gcformat_index(1), gcformat_index(2))",
        "csv(binary_label(1))",
        "csv(regression_label(true))",
        "csv(multiclass_label(1.5))",
        "csv(continuous('1'))",
        "csv(continuous(1, 2))",
        "csv(discrete(1, 1.5))",
        "csv(abs(1))",
        "continuous(1)",
    ] {
        check_refused(sql);
    }
}

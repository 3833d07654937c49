//! Promise L3 on a short run with a fixed seed; `cargo xtask l3 --cases N --seed S` draws more.

use lockstep_testkit::l3;

const CASES: u64 = 400;

#[test]
fn what_batch_mode_accepts_deploys_and_agrees() {
    let report = l3::run(3, CASES);
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    // A generator that never draws a GROUP BY, or draws what nobody accepts, proves nothing.
    assert!(report.compared * 10 > CASES * 9, "{report}");
    assert!(report.answered * 2 > report.compared, "{report}");
    for feature in [
        "GROUP BY",
        "HAVING",
        "WHERE",
        "CTE",
        "UNION ALL",
        "DISTINCT",
        "LAST JOIN",
        "LEFT JOIN",
        "window UNION",
        "expression as a join key",
        "expression as a partition key",
    ] {
        let count = report.features.get(feature).copied().unwrap_or_default();
        assert!(count >= CASES / 100, "{feature}: {count}\n{report}");
    }
}

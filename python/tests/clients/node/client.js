// Asks a server with node-postgres and prints what it answers, for `python/tests/test_clients_node.py`.
//
// The arguments are the port and the name of a scenario. Each answer is a line of JSON.

"use strict";

const pg = require("pg");
const Cursor = require("pg-cursor");

const NOON = new Date("2024-01-01T12:00:00Z");
const say = (value) => console.log(JSON.stringify(value));

const scenarios = {
  async query(db) {
    const found = await db.query("SELECT user, price, ts, ok FROM orders WHERE user = 'ann'");
    say(found.rows);
    say(found.fields.map((field) => [field.name, field.dataTypeID]));
    const both = await db.query("SELECT 1 AS a; SELECT 'x' AS b");
    say(both.map((result) => result.rows));
    say((await db.query("CREATE TABLE node_made (a INT)")).command);
    say((await db.query("INSERT INTO node_made VALUES (1), (2), (3)")).rowCount);
  },

  async parameters(db) {
    const sql = "SELECT user, price FROM orders WHERE user = $1 AND price > $2 AND ts < $3";
    say((await db.query(sql, ["ann", 1, NOON])).rows);
    const call = "SELECT * FROM total(user => $1, price => $2, ts => $3, ok => $4, day => $5)";
    say((await db.query(call, ["ann", 2.5, NOON, true, null])).rows);
    say((await db.query({ text: "SELECT $1 AS a, $2 AS b", values: ["o'b\\\"é", null], rowMode: "array" })).rows);
    const binary = { text: "SELECT number FROM numbers WHERE number < $1", values: [3], binary: true };
    say((await db.query(binary)).rows);
  },

  async named(db) {
    const sql = "SELECT spent FROM total($1, $2, $3, $4, $5)";
    for (let price = 1; price < 6; price++) {
      const values = ["ann", price, NOON, null, null];
      say((await db.query({ name: "total", text: sql, values })).rows);
    }
  },

  async cursor(db) {
    const cursor = db.query(new Cursor("SELECT number FROM numbers ORDER BY number"));
    const parts = [];
    for (;;) {
      const rows = await cursor.read(4);
      if (rows.length === 0) break;
      parts.push(rows.map((row) => row.number));
    }
    await cursor.close();
    say(parts);
    const early = db.query(new Cursor("SELECT number FROM numbers ORDER BY number"));
    say((await early.read(1)).length);
    await early.close();
    say((await db.query("SELECT 1 AS after")).rows);
  },

  async errors(db) {
    for (const sql of ["SELECT nothing FROM orders", "SELECT FROM WHERE"]) {
      await db.query(sql).catch((error) => say([error.code, error.position, error.severity]));
    }
    await db.query("BEGIN");
    await db.query("SELECT nothing FROM orders").catch((error) => say(error.code));
    await db.query("SELECT 1").catch((error) => say(error.code));
    await db.query("ROLLBACK");
    say((await db.query("SELECT 1 AS after")).rows);
  },
};

async function main() {
  const [port, scenario] = process.argv.slice(2);
  const pool = new pg.Pool({ host: "127.0.0.1", port: Number(port), user: "root", database: "default", max: 2 });
  const db = await pool.connect();
  try {
    await scenarios[scenario](db);
  } finally {
    db.release();
    await pool.end();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

// Asks a server with pgJDBC and prints what it answers, for `python/tests/test_clients_jdbc.py`.
//
// The arguments are the port and the name of a scenario. A line is printed for each row, with `|` between
// its values.

import java.io.StringReader;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.postgresql.PGConnection;

public final class Client {
  private static final Timestamp NOON = Timestamp.from(Instant.parse("2024-01-01T12:00:00Z"));

  public static void main(String[] arguments) throws Exception {
    String port = arguments[0];
    String scenario = arguments[1];
    String mode = arguments.length > 2 ? arguments[2] : "extended";
    Properties properties = new Properties();
    properties.setProperty("user", "root");
    properties.setProperty("preferQueryMode", mode);
    properties.setProperty("options", "-c TimeZone=UTC");
    String url = "jdbc:postgresql://127.0.0.1:" + port + "/default";
    try (Connection db = DriverManager.getConnection(url, properties)) {
      switch (scenario) {
        case "statements" -> statements(db, "jdbc_" + mode);
        case "prepared" -> prepared(db);
        case "batch" -> batch(db);
        case "copy" -> copy(db);
        case "cursor" -> cursor(db);
        case "errors" -> errors(db);
        case "metadata" -> metadata(db.getMetaData());
        default -> throw new IllegalArgumentException(scenario);
      }
    }
  }

  private static void statements(Connection db, String table) throws SQLException {
    try (Statement statement = db.createStatement()) {
      print(statement.executeQuery("SELECT user, price, ok, day FROM orders WHERE user = 'ann'"));
      print(statement.executeQuery("SELECT * FROM total('ann', 2, '2024-01-01 12:00:00', NULL, NULL)"));
      try (ResultSet rows = statement.executeQuery("SELECT ts FROM orders WHERE user = 'ann'")) {
        rows.next();
        System.out.println(rows.getObject(1, OffsetDateTime.class).toInstant());
      }
      System.out.println(statement.executeUpdate("CREATE TABLE " + table + " (a INT)"));
      System.out.println(statement.executeUpdate("INSERT INTO " + table + " VALUES (1), (2)"));
    }
  }

  private static void prepared(Connection db) throws SQLException {
    String sql = "SELECT user, price FROM orders WHERE user = ? AND price > ? AND ts < ?";
    // After the fifth run the driver names the statement, and its values are binary.
    try (PreparedStatement statement = db.prepareStatement(sql)) {
      for (int run = 0; run < 7; run++) {
        statement.setString(1, "ann");
        statement.setDouble(2, run / 10.0);
        statement.setTimestamp(3, NOON);
        print(statement.executeQuery());
      }
    }
    String call = "SELECT * FROM total(user => ?, price => ?, ts => ?, ok => ?, day => ?)";
    try (PreparedStatement statement = db.prepareStatement(call)) {
      for (int run = 1; run < 8; run++) {
        statement.setString(1, "ann");
        statement.setDouble(2, run);
        statement.setTimestamp(3, NOON);
        statement.setBoolean(4, true);
        statement.setNull(5, java.sql.Types.DATE);
        print(statement.executeQuery());
      }
      ResultSetMetaData columns = statement.getMetaData();
      for (int at = 1; at <= columns.getColumnCount(); at++) {
        System.out.println(columns.getColumnName(at) + "|" + columns.getColumnTypeName(at));
      }
      System.out.println(statement.getParameterMetaData().getParameterTypeName(2));
    }
  }

  private static void batch(Connection db) throws SQLException {
    try (Statement statement = db.createStatement()) {
      statement.execute("CREATE TABLE jdbc_batch (user STRING, price DOUBLE)");
    }
    db.setAutoCommit(false);
    try (PreparedStatement insert = db.prepareStatement("INSERT INTO jdbc_batch VALUES (?, ?)")) {
      for (int row = 0; row < 300; row++) {
        insert.setString(1, "u" + row);
        insert.setDouble(2, row);
        insert.addBatch();
      }
      int total = 0;
      for (int count : insert.executeBatch()) {
        total += count;
      }
      System.out.println(total);
    }
    db.commit();
    try (Statement statement = db.createStatement()) {
      print(statement.executeQuery("SELECT count(*) AS rows, sum(price) AS total FROM jdbc_batch"));
    }
  }

  private static void copy(Connection db) throws Exception {
    try (Statement statement = db.createStatement()) {
      statement.execute("CREATE TABLE jdbc_copy (user STRING, price DOUBLE)");
    }
    var copy = db.unwrap(PGConnection.class).getCopyAPI();
    System.out.println(copy.copyIn("COPY jdbc_copy FROM STDIN (FORMAT csv)", new StringReader("a,1\nb,2.5\n")));
    var out = new java.io.StringWriter();
    copy.copyOut("COPY jdbc_copy TO STDOUT (FORMAT csv)", out);
    System.out.print(out);
  }

  private static void cursor(Connection db) throws SQLException {
    db.setAutoCommit(false);
    try (Statement statement = db.createStatement()) {
      statement.setFetchSize(2);
      int count = 0;
      try (ResultSet rows = statement.executeQuery("SELECT number FROM numbers ORDER BY number")) {
        while (rows.next()) {
          count += rows.getInt(1);
        }
      }
      System.out.println(count);
    }
    db.rollback();
  }

  private static void errors(Connection db) throws SQLException {
    db.setAutoCommit(false);
    try (Statement statement = db.createStatement()) {
      try {
        statement.executeQuery("SELECT nothing FROM orders");
      } catch (SQLException error) {
        System.out.println(error.getSQLState());
      }
      try {
        statement.executeQuery("SELECT 1 AS one");
      } catch (SQLException error) {
        System.out.println(error.getSQLState());
      }
      db.rollback();
      print(statement.executeQuery("SELECT 1 AS one"));
    }
  }

  /** Asks for what DBeaver and other tools show. */
  private static void metadata(DatabaseMetaData data) throws SQLException {
    System.out.println(data.getDatabaseProductName() + "|" + data.getDatabaseMajorVersion());
    show("catalogs", data.getCatalogs(), "TABLE_CAT");
    show("schemas", data.getSchemas(), "TABLE_SCHEM");
    show("types", data.getTableTypes(), "TABLE_TYPE");
    String[] tables = {"TABLE"};
    show("tables", data.getTables(null, "public", "ord%", tables), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE");
    show("all tables", data.getTables(null, null, "numbers", null), "TABLE_NAME");
    show(
        "columns",
        data.getColumns(null, "public", "orders", null),
        "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "NULLABLE", "ORDINAL_POSITION", "IS_NULLABLE");
    show("primary keys", data.getPrimaryKeys(null, "public", "orders"), "COLUMN_NAME");
    show("imported keys", data.getImportedKeys(null, "public", "orders"), "FK_NAME");
    show("exported keys", data.getExportedKeys(null, "public", "orders"), "FK_NAME");
    show(
        "indexes",
        data.getIndexInfo(null, "public", "orders", false, false),
        "NON_UNIQUE", "TYPE", "ORDINAL_POSITION", "COLUMN_NAME");
    show("functions", data.getFunctions(null, "public", "%"), "FUNCTION_SCHEM", "FUNCTION_NAME");
    show("function columns", data.getFunctionColumns(null, "public", "total", null), "COLUMN_NAME", "TYPE_NAME");
    show("procedures", data.getProcedures(null, "public", "%"), "PROCEDURE_NAME");
    show("best row", data.getBestRowIdentifier(null, "public", "orders", 0, true), "COLUMN_NAME");
    show("column privileges", data.getColumnPrivileges(null, "public", "numbers", null), "COLUMN_NAME");
    show("table privileges", data.getTablePrivileges(null, "public", "numbers"), "TABLE_NAME");
    show("client info", data.getClientInfoProperties(), "NAME");
    int types = 0;
    try (ResultSet rows = data.getTypeInfo()) {
      while (rows.next()) {
        types += List.of("int4", "float8", "text", "timestamptz").contains(rows.getString("TYPE_NAME")) ? 1 : 0;
      }
    }
    System.out.println("type info|" + types);
    System.out.println("keywords|" + (data.getSQLKeywords() != null));
    System.out.println("read only|" + data.isReadOnly());
    System.out.println("name length|" + data.getMaxTableNameLength());
  }

  private static void show(String title, ResultSet rows, String... columns) throws SQLException {
    try (rows) {
      while (rows.next()) {
        List<String> values = new ArrayList<>();
        for (String column : columns) {
          values.add(String.valueOf(rows.getString(column)));
        }
        System.out.println(title + "|" + String.join("|", values));
      }
    }
  }

  private static void print(ResultSet rows) throws SQLException {
    try (rows) {
      int width = rows.getMetaData().getColumnCount();
      while (rows.next()) {
        List<String> values = new ArrayList<>();
        for (int at = 1; at <= width; at++) {
          values.add(String.valueOf(rows.getString(at)));
        }
        System.out.println(String.join("|", values));
      }
    }
  }
}

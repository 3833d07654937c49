-- The tables of the demonstration. No index is declared: each window and join gets the one it
-- needs when its query is deployed.

-- Calendar functions speak of New York's clocks; stored times are UTC.
SET time_zone = 'America/New_York';

-- A flight as it stands at its scheduled departure, `ts`: what is not known then is NULL.
CREATE TABLE flights (
  flight_id BIGINT, ts TIMESTAMP, carrier STRING, flight INT, tailnum STRING, origin STRING,
  dest STRING, distance INT, scheduled_minutes INT, dep_delay INT, arr_delay INT, air_minutes INT
);

-- A flight has left: `ts` is one minute after it did, and at the earliest one minute after the
-- scheduled time, so that no flight sees its own departure. `dep_delay` is known.
CREATE TABLE departures (
  flight_id BIGINT, ts TIMESTAMP, carrier STRING, flight INT, tailnum STRING, origin STRING,
  dest STRING, distance INT, scheduled_minutes INT, dep_delay INT, arr_delay INT, air_minutes INT
);

-- A flight has arrived: `ts` is when it did. `arr_delay` and `air_minutes` are known.
CREATE TABLE arrivals (
  flight_id BIGINT, ts TIMESTAMP, carrier STRING, flight INT, tailnum STRING, origin STRING,
  dest STRING, distance INT, scheduled_minutes INT, dep_delay INT, arr_delay INT, air_minutes INT
);

-- Hourly readings at the airports of departure. The reading of an hour is known at that hour.
CREATE TABLE weather (
  origin STRING, ts TIMESTAMP, temp DOUBLE, humid DOUBLE, wind_speed DOUBLE, wind_gust DOUBLE,
  precip DOUBLE, pressure DOUBLE, visib DOUBLE
);

-- The register of aircraft, as its CSV file has it.
CREATE TABLE planes (
  tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT,
  seats INT, speed INT, engine STRING
);

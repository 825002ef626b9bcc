DROP TABLE departures;
DROP TABLE machines;

CREATE TABLE notes (id uuid PRIMARY KEY, body text NOT NULL UNIQUE, at timestamptz NOT NULL, until timestamptz);

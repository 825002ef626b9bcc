DROP TABLE signing_keys;
DROP TABLE revocations;
DROP TABLE machine_tokens;
DROP TABLE challenges;
DROP TABLE accounts;

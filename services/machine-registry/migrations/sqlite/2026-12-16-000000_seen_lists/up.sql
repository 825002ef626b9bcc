-- The newest device list of its owner that a machine says it obeys: version, digest and signature, as JSON.
ALTER TABLE machines ADD COLUMN seen TEXT;

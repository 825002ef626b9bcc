DROP TABLE deleted_machines;

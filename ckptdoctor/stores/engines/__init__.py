"""Where batches are examined: ``engine`` says what all engines have in common, ``named`` chooses one."""

"""Operations over HTTP: reading, actions on events and on boxes, and jobs."""

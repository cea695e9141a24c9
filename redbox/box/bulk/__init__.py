"""Operations on many events: replay, drop, export and sweep, by a selection and at a pace."""

"""What an operator reads beside the stats: error groups, incidents, rates, blocked keys and conditions."""

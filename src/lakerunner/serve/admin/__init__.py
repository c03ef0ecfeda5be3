"""Routes for operators: the state of the deployment."""

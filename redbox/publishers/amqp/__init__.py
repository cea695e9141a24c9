"""`amqp://` and `amqps://`: an exchange of RabbitMQ, or of another broker of AMQP 0-9-1."""

"""DynamoDB, SQS and Secrets Manager behind the ports. The only package that knows them."""

DROP TABLE voice_webhook_deliveries;

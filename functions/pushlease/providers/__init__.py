"""The providers: one package each for APNs and FCM, and what both share. Knows no rows and no AWS."""

"""The engine: durable jobs under forward-dated leases. Knows nothing of pushes or AWS.

======================  ============================================================================
``job``                 what a job is
``lifecycle``           which event may lead from which status to which: one table
``retry``               when the next attempt may run
``settle``              what the results of an attempt make of a job
``ports``               the doors to the store, the queues and the attempt
``engine``              claim → attempt → settle → publish, for a hint's worker and for the drain alike
``burial``              dead jobs on their way into the dead-letter queue, and back
======================  ============================================================================

All instants are epoch milliseconds by the caller's clock, all spans ``timedelta``.
"""

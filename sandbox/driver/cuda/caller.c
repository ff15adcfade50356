/* The thread that runs host functions, one at a time, while the card goes on with other streams. */
#include "worker.h"

static _Thread_local bool calling;

bool sim_engine_calling(void)
{
    return calling;
}

void sim_caller_take(struct sim_engine *engine, struct sim_op *op)
{
    op->host.next = NULL;
    if (engine->called == NULL)
        engine->called = op;
    else
        engine->last_called->host.next = op;
    engine->last_called = op;
    pthread_cond_signal(&engine->call);
}

void *sim_caller_run(void *argument)
{
    struct sim_engine *engine = argument;
    calling = true;
    pthread_mutex_lock(&engine->lock);
    for (;;) {
        while (engine->called == NULL)
            pthread_cond_wait(&engine->call, &engine->lock);
        struct sim_op *op = engine->called;
        engine->called = op->host.next;
        pthread_mutex_unlock(&engine->lock);
        op->host.run(op->host.data);
        pthread_mutex_lock(&engine->lock);
        op->over_at = sim_now();
        op->state = SIM_OP_ENDED;
        sim_worker_kick(engine);
    }
    return NULL;
}

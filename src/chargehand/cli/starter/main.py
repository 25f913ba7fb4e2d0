"""The service: `uvicorn main:app` serves this API and runs the workers."""

from fastapi import FastAPI

from jobs import Text, Words, count, hand

app = FastAPI()
hand.attach(app)  # starts the node and its workers with this application; the dashboard is at /chargehand/dashboard


@app.post("/texts", status_code=202)
async def submit(text: Text) -> str:
    """Enqueues a text. Returns the id of the job."""
    return (await count.enqueue_async(text)).id


@app.get("/texts/{id}")
async def result(id: str) -> Words:
    """Waits for the result and returns it."""
    return await count.ref(id).result(timeout=30)

"""The service: `uvicorn main:app` serves this API and runs the workers."""

from fastapi import FastAPI

from jobs import Text, Words, count, hand

app = FastAPI()
hand.attach(app)  # the node and its workers run while this application does; all is seen under /chargehand


@app.post("/texts", status_code=202)
async def submit(text: Text) -> str:
    """Enqueue a text; the answer is the job's id."""
    return (await count.enqueue_async(text)).id


@app.get("/texts/{id}")
async def result(id: str) -> Words:
    """Wait for the result."""
    return await count.ref(id).result(timeout=30)

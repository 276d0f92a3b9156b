"""Sends two requests with an SDK of Python: client.py SDK HOST:PORT KEY. Prints its version, and what the program gets."""

import importlib.metadata
import json
import sys

sdk, address, key = sys.argv[1:]
headers = {"x-api-key": key}
messages = [{"role": "user", "content": "hello"}]


def openai():
    import openai

    client = openai.OpenAI(api_key="none", base_url=f"http://{address}/v1", default_headers=headers)
    return lambda: client.chat.completions.create(model="m", messages=messages)


def anthropic():
    import anthropic

    client = anthropic.Anthropic(api_key="none", base_url=f"http://{address}", default_headers=headers)
    return lambda: client.messages.create(model="m", max_tokens=1, messages=messages)


def google_genai():
    from google import genai

    client = genai.Client(api_key="none", http_options={"base_url": f"http://{address}", "headers": headers})
    return lambda: client.models.generate_content(model="m", contents="hello")


def grpcio():
    import grpc

    retry = {"maxAttempts": 5, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}
    policy = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": retry}]})
    channel = grpc.insecure_channel(address, options=[("grpc.service_config", policy)])
    check = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes)
    return lambda: check(b"", metadata=[("x-api-key", key)], timeout=60)


def told(error):
    """Returns what a program can read of an error."""
    code = getattr(error, "code", None)
    if callable(code):
        return f"{code().name}: {error.details()}"
    if code is None:
        code = (getattr(error, "body", None) or {}).get("error", {}).get("type")
    return f"{type(error).__name__}, {code}: {error}"


request = globals()[sdk.replace("-", "_")]()
answers = []
for _ in range(2):
    try:
        request()
        answers.append("")
    except Exception as error:
        answers.append(told(error))
print(json.dumps({"version": importlib.metadata.version(sdk), "answers": answers}))

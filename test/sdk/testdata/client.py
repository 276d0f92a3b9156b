"""Sends two requests with an SDK of Python: client.py SDK HOST:PORT KEY. With a fourth argument, the second one is sent
again after the wait that its error has. Prints the version of the SDK, and what the program gets."""

import importlib.metadata
import json
import sys
import time

sdk, address, key = sys.argv[1:4]
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


def mcp():
    import asyncio

    import httpx2
    from mcp import Client, MCPError
    from mcp.client.streamable_http import streamable_http_client

    async def call():
        async with httpx2.AsyncClient(headers=headers) as http:
            async with Client(streamable_http_client(f"http://{address}/mcp", http_client=http)) as client:
                try:
                    await client.call_tool("search", {})
                except MCPError as error:  # outside it is a part of a group
                    return error

    def request():
        if error := asyncio.run(call()):
            raise error

    return request


def told(error):
    """Returns what a program can read of an error."""
    code = getattr(error, "code", None)
    if callable(code):
        return f"{code().name}: {error.details()}"
    if sdk == "mcp" and error.data["rule"]:
        code = f"{code}, data"
    if code is None:
        code = (getattr(error, "body", None) or {}).get("error", {}).get("type")
    return f"{type(error).__name__}, {code}: {error}"


def wait(error):
    """Returns the seconds that a program finds in an error."""
    if sdk == "mcp":
        return error.data["retryAfterMs"] / 1000
    if sdk == "grpcio":
        from google.rpc.error_details_pb2 import RetryInfo
        from grpc_status.rpc_status import from_call

        info = RetryInfo()
        from_call(error).details[0].Unpack(info)
        return info.retry_delay.ToMilliseconds() / 1000 + 0.001
    return float(error.response.headers["retry-after"])


request = globals()[sdk.replace("-", "_")]()
answers = []
for _ in range(2 + len(sys.argv[4:])):
    try:
        request()
        answers.append("")
    except Exception as error:
        answers.append(told(error))
        if sys.argv[4:]:
            time.sleep(wait(error))
print(json.dumps({"version": importlib.metadata.version(sdk), "answers": answers}))

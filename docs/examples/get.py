#!/usr/bin/env python3
"""Gets a URL, and waits as the rate limit says: get.py URL [API key]."""

import datetime
import email.utils
import random
import sys
import time
import urllib.error
import urllib.request


class WaitTooLong(Exception):
    """The wait that the server asks for is longer than the caller wants to wait."""

    def __init__(self, wait):
        super().__init__(f"limited for {wait:.0f} s, which is too long to wait")
        self.wait = wait


def told_wait(headers):
    """Returns the seconds of Retry-After, which may be a date, or None."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return min(int(value[:10]), 10**9)
    try:
        at = email.utils.parsedate_to_datetime(value)
        return max(0.0, (at - datetime.datetime.now(datetime.timezone.utc)).total_seconds())
    except (TypeError, ValueError):
        return None


def get(url, headers, max_wait=60, max_retries=4):
    """Returns the body. Raises WaitTooLong, or HTTPError for an answer that is not repeated."""
    left = max_wait
    for retry in range(max_retries + 1):
        try:
            request = urllib.request.Request(url, headers=headers)
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.read()
        except urllib.error.HTTPError as error:
            wait = told_wait(error.headers)
            if error.code != 429 or wait is None or retry == max_retries:
                raise
            error.close()
        # A random part, so that clients who wait together do not come back together.
        wait += random.uniform(0, max(1, wait / 10) if retry == 0 else min(60, 2**retry))
        if wait > left:
            raise WaitTooLong(wait)
        left -= wait
        time.sleep(wait)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: get.py URL [API key]")
    try:
        body = get(sys.argv[1], {"x-api-key": sys.argv[2]} if len(sys.argv) > 2 else {})
    except (WaitTooLong, ValueError, urllib.error.URLError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
    sys.stdout.buffer.write(body)

"""The same consumer as consumer.py, as a Django application in one file.

uvicorn --app-dir examples consumer_django:app --port 8001

Views are plain functions here, so it uses `SyncGuard`. In your project, only the views are of interest.
"""

import os
from typing import Any

import django
import redis
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import Http404, HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from redbox.consumer import DeliveryInProgress, DeliveryRefused, SyncGuard, verify

settings.configure(ALLOWED_HOSTS=["127.0.0.1"], ROOT_URLCONF=__name__)
django.setup()

SECRET = os.environ["CONSUMER_SECRET"]

client: Any = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
guard = SyncGuard(client, name="shop", lease=30)


@csrf_exempt  # the signature says who sent the request
@require_POST
def receive(request: HttpRequest) -> JsonResponse:
    try:
        delivery = verify(request.headers, request.body, SECRET)
        with guard.once(delivery) as first:
            if not first:
                return JsonResponse({"result": "duplicate"})
            change = delivery.decode()
            with first.transaction() as pipe:
                pipe.hset(f"order:{change['order']}", mapping={"status": change["status"]})
                pipe.hincrby(f"order:{change['order']}", "changes", 1)
        return JsonResponse({"result": "handled"})
    except DeliveryRefused as error:
        headers = {"retry-after": str(error.retry_after)} if isinstance(error, DeliveryInProgress) else {}
        return JsonResponse({"error": str(error)}, status=error.status, headers=headers)


def show_order(_: HttpRequest, order_id: str) -> JsonResponse:
    found = client.hgetall(f"order:{order_id}")
    if not found:
        raise Http404("unknown order")
    return JsonResponse({name.decode(): value.decode() for name, value in found.items()})


urlpatterns = [path("orders", receive), path("orders/<order_id>", show_order)]
app = get_asgi_application()

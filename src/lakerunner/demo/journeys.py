"""What customers do in the shop, and which services call each other to do it."""

from __future__ import annotations

from lakerunner.demo.calls import Call, Fault, Kind, consume, database, grpc, http, internal, publish
from lakerunner.demo.steps import Journey, journey

POSTGRES_DOWN = Fault("psycopg.OperationalError", "connection to postgresql.shop.svc failed: timeout expired", 503, 14)
DEADLOCK = Fault("pq.Error", "deadlock detected on relation stock", 500, 10, weight=0.6)
REDIS_DOWN = Fault(
    "redis.exceptions.ConnectionError", "Error 111 connecting to redis.shop.svc:6379. Connection refused.", 503, 14
)
NIL = Fault("runtime.errorString", "invalid memory address or nil pointer dereference", 500, 2)
GATEWAY = Fault("java.net.SocketTimeoutException", "Read timed out after 3000 ms calling the card gateway", 504, 4)
SHARDS = Fault(
    "co.elastic.clients.ElasticsearchException", "all shards failed: index products-v7 is not green", 503, 14
)
MODEL = Fault("ValueError", "model features have 96 dimensions, expected 128", 500, 13)
NULL = Fault("System.NullReferenceException", "Object reference not set to an instance of an object.", 500, 13)
SMTP = Fault("Net::SMTPServerBusy", "451 4.3.0 Temporary lookup failure", 503, 14)
PASSWORD = Fault("InvalidCredentials", "password does not match", 401, 16, customers=True, weight=0.06)
UNKNOWN = Fault("ProductNotFound", "no product with that id", 404, 5, customers=True, weight=0.02)
DECLINED = Fault("CardDeclined", "card was declined by its issuer", 402, 9, customers=True, weight=0.03)

UNDEFINED = Fault("TypeError", "Cannot read properties of undefined (reading 'price')")
NO_CARRIER = Fault("NoCarrier", "no carrier takes this parcel: weight table is empty")

_SESSION = grpc("auth", "Auth", "Verify", 1.2, database("redis", "GET", "session", "GET session:?", 0.4, REDIS_DOWN))
_PRODUCT = grpc(
    "catalogue",
    "Catalogue",
    "GetProduct",
    1.5,
    database("redis", "GET", "product", "GET product:?", 0.3),
    database("postgresql", "SELECT", "products", "SELECT * FROM products WHERE id = $1", 2.5, POSTGRES_DOWN),
    fault=UNKNOWN,
)
_RECOMMENDATIONS = grpc(
    "recommendations",
    "Recommendations",
    "List",
    6.0,
    internal("rank candidates", 9.0, ("shop.candidates", 128)),
    fault=MODEL,
    optional=True,
)
_CART = grpc(
    "cart", "Cart", "GetCart", 1.0, database("redis", "HGETALL", "cart", "HGETALL cart:?", 0.5, REDIS_DOWN), fault=NULL
)

JOURNEYS: tuple[Journey, ...] = (
    journey(
        0.22,
        http(
            "frontend",
            "GET",
            "/",
            4.0,
            grpc(
                "catalogue",
                "Catalogue",
                "ListProducts",
                2.0,
                database(
                    "postgresql",
                    "SELECT",
                    "products",
                    "SELECT id, name, price FROM products LIMIT 40",
                    6.0,
                    POSTGRES_DOWN,
                ),
            ),
            _RECOMMENDATIONS,
            fault=UNDEFINED,
        ),
    ),
    journey(
        0.30,
        http(
            "frontend",
            "GET",
            "/product/{id}",
            3.0,
            _PRODUCT,
            grpc(
                "inventory",
                "Inventory",
                "GetStock",
                1.0,
                database("postgresql", "SELECT", "stock", "SELECT quantity FROM stock WHERE product = $1", 1.5),
            ),
            _RECOMMENDATIONS,
        ),
    ),
    journey(
        0.16,
        http(
            "frontend",
            "GET",
            "/search",
            3.5,
            http(
                "search",
                "POST",
                "/v1/query",
                4.0,
                internal("parse query", 0.3),
                database("elasticsearch", "search", "products", '{"query":{"match":{"name":?}}}', 18.0, SHARDS),
            ),
        ),
    ),
    journey(
        0.12,
        http(
            "frontend",
            "POST",
            "/cart",
            2.5,
            _SESSION,
            _PRODUCT,
            grpc("cart", "Cart", "AddItem", 1.2, database("redis", "HSET", "cart", "HSET cart:? ? ?", 0.6), fault=NULL),
        ),
    ),
    journey(0.07, http("frontend", "GET", "/cart", 2.5, _SESSION, _CART)),
    journey(
        0.04,
        http(
            "frontend",
            "POST",
            "/login",
            2.0,
            http(
                "auth",
                "POST",
                "/v1/token",
                2.0,
                database(
                    "postgresql", "SELECT", "users", "SELECT id, hash FROM users WHERE email = $1", 1.8, POSTGRES_DOWN
                ),
                internal("bcrypt compare", 48.0),
                fault=PASSWORD,
            ),
        ),
    ),
    journey(
        0.05,
        http(
            "frontend",
            "POST",
            "/checkout",
            4.0,
            _SESSION,
            grpc(
                "checkout",
                "Checkout",
                "PlaceOrder",
                5.0,
                _CART,
                grpc(
                    "inventory",
                    "Inventory",
                    "Reserve",
                    1.5,
                    database(
                        "postgresql",
                        "UPDATE",
                        "stock",
                        "UPDATE stock SET quantity = quantity - $2 WHERE product = $1",
                        4.0,
                        DEADLOCK,
                    ),
                ),
                grpc(
                    "shipping",
                    "Shipping",
                    "Quote",
                    3.0,
                    internal("pick carrier", 1.0, ("shop.carrier", "parcel-one")),
                    fault=NO_CARRIER,
                ),
                http(
                    "payment",
                    "POST",
                    "/v1/charges",
                    6.0,
                    internal("fraud check", 12.0, ("shop.fraud.score", 0.12)),
                    Call(
                        None,
                        "POST gateway",
                        Kind.CLIENT,
                        140.0,
                        (
                            ("http.request.method", "POST"),
                            ("server.address", "api.cardgateway.example"),
                            ("url.full", "https://api.cardgateway.example/v2/charge"),
                        ),
                        fault=GATEWAY,
                        protocol="http",
                    ),
                    fault=DECLINED,
                ),
                grpc(
                    "orders",
                    "Orders",
                    "Create",
                    3.0,
                    database(
                        "postgresql", "INSERT", "orders", "INSERT INTO orders VALUES ($1, $2, $3)", 5.0, POSTGRES_DOWN
                    ),
                    publish("orders.placed", 1.0),
                ),
                fault=NIL,
            ),
        ),
        sets_off=(
            consume(
                "email",
                "orders.placed",
                5.0,
                internal("render template", 8.0, ("shop.template", "order-confirmation")),
                Call(
                    None,
                    "POST smtp relay",
                    Kind.CLIENT,
                    60.0,
                    (("server.address", "smtp.example"), ("server.port", 587)),
                    fault=SMTP,
                ),
            ),
            consume(
                "shipping",
                "orders.placed",
                6.0,
                database("postgresql", "INSERT", "parcels", "INSERT INTO parcels VALUES ($1, $2)", 3.0),
            ),
        ),
    ),
    journey(
        0.04,
        http(
            "frontend",
            "GET",
            "/orders/{id}",
            2.0,
            _SESSION,
            grpc(
                "orders",
                "Orders",
                "Get",
                1.5,
                database("postgresql", "SELECT", "orders", "SELECT * FROM orders WHERE id = $1", 3.0, POSTGRES_DOWN),
            ),
        ),
    ),
)
